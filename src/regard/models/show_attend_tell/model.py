"""Show, Attend and Tell: captions an image with a recurrent decoder that attends to its annotation vectors."""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attn import observer, stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import Factory
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.read import Sample
from regard.attn.terms.score import Additive
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import AttentionDecoder, DecoderOutput, DecoderStep, RecurrentState, join_attended
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput
from regard.layers.rnn.stack import Bridge, Stack
from regard.models.encoder_decoder import init_embedding
from regard.models.show_attend_tell.encoder import annotation_vectors, annotation_width
from regard.models.show_attend_tell.image_captioner import CaptionState, Grid, ImageCaptioner, spatial_keys


def _salient_score(query: int, key: int) -> Additive:
    """v · tanh(W h + U a), which at first attends to large activations: half of its units start with U and v above 0.

    Annotation vectors after a rectifier are small where the image is empty. A score with an arbitrary initialization
    turns away from patches that it cannot describe yet, and then nothing is learned about them.
    """
    score = Additive(query, key, key)
    half = key // 2
    with torch.no_grad():
        score.key.weight[:half].normal_(std=0.5 / key).abs_()
        score.energy[:half] = 4.0 / max(half, 1)
    return score


# ways to read patches: all by their weights, or one that is sampled (in evaluation the most probable)
ATTENTIONS: dict[str, Factory] = {
    "soft": lambda query, key: Attention(_salient_score(query, key)),
    "hard": lambda query, key: Attention(_salient_score(query, key), read=Sample()),
}
# the parts that decide whether and where to attend learn at this fraction of the rate: otherwise they converge to
# nothing before the annotation vectors contain anything
_SLOW = 0.1


class CaptionDecoder(AttentionDecoder):
    """ẑ_t = σ(w·h_{t−1} + b) attend(h_{t−1}, a); h_t = LSTM([y_{t−1}; ẑ_t]); r_t = y_{t−1} + L_h h_t + L_z ẑ_t.

    (Xu et al. 2015, eq. 1 to 7 and 4.2.1.) The first state is computed from the mean annotation vector. `expected`:
    while a hard attention is trained, the patches of an image are with this probability not sampled but mixed by their
    weights, their expectation (4.1): such an image has no log-probability of samples, and its gradient goes through the
    weights.
    """

    def __init__(self, dim: int, source_dim: int, hidden: int, *, attention: Factory, expected: float = 0.5) -> None:
        super().__init__()
        context_dim = self._build_attention(attention, hidden, source_dim)
        self.stack = Stack(dim, hidden, fed=context_dim, cell="lstm")
        self.bridge = Bridge(source_dim, self.stack)
        self.gate = nn.Linear(hidden, 1)
        nn.init.ones_(self.gate.bias)  # at first most of the context passes
        self.of_state = nn.Linear(hidden, dim)
        self.of_context = nn.Linear(context_dim, dim, bias=False)
        self.expected, self.out_features = expected, dim

    def teacher_force(self, y: Tensor, encoded: EncoderOutput, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        memory, cells = stepwise.project_kv(self.attention, encoded.outputs), self.bridge(encoded.summary)
        attention_state, cell = self._initial_attention_state(memory), self.stack.steps(y)
        is_sampling = self._is_sampling()
        is_mixed = torch.rand(len(y), 1, 1, device=y.device) < self.expected if is_sampling and self.expected else None
        step_need = self._need(need.weights or is_mixed is not None)
        states: list[Tensor] = []
        contexts: list[Tensor] = []
        attentions: list[Attended] = []
        for t in range(y.shape[1]):
            previous = cells[-1][0].unsqueeze(1)
            attended, attention_state = self._attend_step(previous, memory, lengths, attention_state, step_need)
            if is_mixed is not None:
                attended = _mix_expectation(attended, memory, is_mixed)
            context = self._gate_context(previous, attended.out)
            s, cells = cell.step(t, context.squeeze(1), cells)
            states.append(s)
            contexts.append(context)
            attentions.append(attended)
        attended = join_attended(attentions)
        out = self._read(torch.stack(states, dim=1), y, torch.cat(contexts, dim=1))
        return DecoderOutput(out, attended.weights if need.weights else None, attended.log_prob, attended.entropy)

    def init_state(self, encoded: EncoderOutput, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses)

    def step(self, tokens: DistinctTokens, state: RecurrentState, weights: bool = False) -> DecoderStep:
        assert state.memory is not None
        previous = state.cells[-1][0].unflatten(0, tokens.rows.shape)
        attended, attention_state = self._attend_step(
            previous, state.memory, state.lengths, state.attention_state, Need(weights=weights)
        )
        context = self._gate_context(previous, attended.out)
        s, cells = self.stack.step(tokens, state.cells, fed=context.flatten(0, 1))
        out = self._read(s, tokens.expand(tokens.vectors), context.flatten(0, 1)).unflatten(0, tokens.rows.shape)
        return DecoderStep(out, replace(state, cells=cells, attention_state=attention_state), attended.weights)

    def _gate_context(self, previous: Tensor, context: Tensor) -> Tensor:  # "b n h", "b n v"
        """β ∘ ẑ: how much the next word depends on the image."""
        return torch.sigmoid(self.gate(previous)) * context

    def _read(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        return y + self.of_state(s) + self.of_context(context)


def _mix_expectation(attended: Attended, memory: KVCache, is_mixed: Tensor) -> Attended:  # mixed "b 1 1"
    """Replaces the sample by its expectation for these images."""
    assert attended.weights is not None
    assert attended.log_prob is not None
    out = torch.where(is_mixed, attended.weights.to(memory.values.dtype) @ memory.values, attended.out)
    return attended._replace(out=out, log_prob=attended.log_prob.masked_fill(is_mixed.squeeze(-1), 0.0))


class ShowAttendTell(ImageCaptioner):
    """p(y_t | y_<t, a) = softmax(L_o (E y_{t−1} + L_h h_t + L_z ẑ_t)), a = encoder(x)  (Xu et al. 2015).

    `encoder` is any module that returns a map "b d h w" or rows "b n d" of images: these are the annotation vectors.
    Their width is its attribute out_features or out_channels, or is measured by one call with `example`, a batch of
    images. `attention` is "soft", "hard" or a factory like those of MECHANISMS: soft attention mixes all patches and is
    trained by its likelihood and `regard.losses.doubly_stochastic`; hard attention reads one patch, sampled in
    training, which uses `regard.losses.reinforce`, and the most probable one in evaluation.

    `baseline` starts at log p of a uniform guess. `lr_multipliers` names the parts that learn slowly.
    """

    decoder: CaptionDecoder

    def __init__(
        self,
        encoder: nn.Module,
        vocabulary: int,
        *,
        width: int = 64,
        hidden: int = 96,
        attention: str | Factory = "soft",
        expected: float | None = None,
        dropout: float = 0.0,
        padding: int = 0,
        example: Tensor | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("ShowAttendTell", vocabulary=vocabulary, width=width, hidden=hidden)
        expected = 0.5 if expected is None else expected
        if not 0 <= expected <= 1:
            raise ValueError(f"expected must be a chance from 0 to 1, got {expected}; the paper has expected=0.5")
        if isinstance(attention, str):
            checks.known("attention", attention, ATTENTIONS)
        factory = ATTENTIONS[attention] if isinstance(attention, str) else attention
        self.encoder = encoder
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.decoder = CaptionDecoder(
            width, annotation_width(encoder, example), hidden, attention=factory, expected=expected
        )
        self.lr_multipliers = {"decoder.gate": _SLOW}
        if any(True for _ in self.decoder.attention.parameters()):
            self.lr_multipliers["decoder.attention"] = _SLOW
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, vocabulary)
        self.register_buffer("baseline", torch.tensor(-math.log(vocabulary)))
        init_embedding(self.embedding)

    def encode(self, images: Tensor) -> tuple[EncoderOutput, Tensor, Grid | None]:  # "b …" -> "b n d", "b"
        """The annotation vectors with their mean, their number per image, and their grid."""
        a, grid = annotation_vectors(self.encoder(images), self.decoder.bridge.linear.in_features)
        lengths = torch.full((len(a),), a.shape[1], device=a.device)
        return EncoderOutput(a, a.mean(1)), lengths, grid

    def teacher_force(
        self, images: Tensor, target: Tensor, need: Need = NOTHING
    ) -> DecoderOutput:  # "b …", "b t" -> "b t d"
        encoded, lengths, grid = self.encode(images)
        y = self.dropout(self.embedding(target))
        # the alignment is assembled when its context ends, and the grid must still be known then
        with spatial_keys(grid), observer.alignment_steps():
            output = self.decoder.teacher_force(y, encoded, lengths, need)
        return output._replace(states=self.dropout(output.states))

    def init_state(self, images: Tensor) -> CaptionState:
        encoded, lengths, grid = self.encode(images)
        return CaptionState(self.decoder.init_state(encoded, lengths), grid)

    def step(self, tokens: Tensor, state: CaptionState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        with spatial_keys(state.grid):
            decoder_step = self.decoder.step(DistinctTokens.of(tokens, self.embedding), state.state, weights)
        return Step(
            LazyLogits.of(self.output, decoder_step.out), replace(state, state=decoder_step.state), decoder_step.weights
        )
