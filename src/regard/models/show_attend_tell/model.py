"""Show, Attend and Tell: a picture as annotation vectors, and a recurrent decoder that looks at them word by word."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attn import checks, observer, stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import Factory
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.read import Sample
from regard.attn.terms.score import Additive
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import Attentive, DecoderOutput, DecoderStep, RecurrentState
from regard.layers.rnn.encoder import Encoded
from regard.layers.rnn.stack import Bridge, Stack
from regard.layers.token_batch import TokenBatch
from regard.models.show_attend_tell.encoder import annotated, wide


def _salient(query: int, key: int) -> Additive:
    """v · tanh(W h + U a), which at first looks where there is much: half of its units begin with U and v above 0.

    Annotation vectors after a rectifier are small where nothing is. A score that begins anywhere turns away from what
    it cannot tell yet, and then nothing is learned of it.
    """
    score = Additive(query, key, key)
    half = key // 2
    with torch.no_grad():
        score.key.weight[:half].normal_(std=0.5 / key).abs_()
        score.energy[:half] = 4.0 / max(half, 1)
    return score


# how a place is taken: all of them by their weights, or one that is drawn (at test the likeliest)
ATTENTIONS: dict[str, Factory] = {
    "soft": lambda query, key: Attention(_salient(query, key)),
    "hard": lambda query, key: Attention(_salient(query, key), read=Sample()),
}
# what decides whether and where to look learns at this share of the rate: otherwise it is settled before there is
# anything to see in annotation vectors, and settled on nothing
_SLOW = 0.1


@dataclass(frozen=True, eq=False)
class CaptionState:
    """Where n captions of each of b pictures stand, and how the places lie."""

    state: RecurrentState
    grid: tuple[int, int] | None  # height and width, if the places are those of a map

    def reorder(self, index: Tensor) -> "CaptionState":  # "b n2"
        """Slot j of picture i continues what was slot index[i, j]."""
        return replace(self, state=self.state.reorder(index))

    def select_sentences(self, index: Tensor) -> "CaptionState":  # "b2"
        """These pictures alone."""
        return replace(self, state=self.state.select_sentences(index))


class CaptionDecoder(Attentive):
    """ẑ_t = σ(w·h_{t−1} + b) attend(h_{t−1}, a); h_t = LSTM([y_{t−1}; ẑ_t]); r_t = y_{t−1} + L_h h_t + L_z ẑ_t.

    (Xu et al. 2015, eq. 1 to 7 and 4.2.1.) The first state is made of the mean annotation vector. `expected`: while a
    hard attention learns, the places of a picture are with this chance not drawn but mixed by their weights, their
    expectation (4.1): a picture has then no log-probability of draws, and its gradient goes through the weights.
    """

    def __init__(self, dim: int, source_dim: int, hidden: int, *, attention: Factory, expected: float = 0.5) -> None:
        super().__init__()
        found = self._attend_by(attention, hidden, source_dim)
        self.stack = Stack(dim, hidden, fed=found, cell="lstm")
        self.bridge = Bridge(source_dim, self.stack)
        self.gate = nn.Linear(hidden, 1)
        nn.init.ones_(self.gate.bias)  # at first most of what is found goes on
        self.of_state = nn.Linear(hidden, dim)
        self.of_context = nn.Linear(found, dim, bias=False)
        self.expected, self.out_features = expected, dim

    def teacher_force(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> DecoderOutput:
        memory, cells = stepwise.project_kv(self.attention, encoded.outputs), self.bridge(encoded.summary)
        looked, cell, draws = self._begin(memory), self.stack.steps(y), self._draws()
        mixed = torch.rand(len(y), 1, 1, device=y.device) < self.expected if draws and self.expected else None
        asked = self._need(need.weights or mixed is not None)
        states: list[Tensor] = []
        contexts: list[Tensor] = []
        found: list[Attended] = []
        for t in range(y.shape[1]):
            before = cells[-1][0].unsqueeze(1)
            got, looked = self._look(before, memory, lengths, looked, asked)
            if mixed is not None:
                got = _expected(got, memory, mixed)
            context = self._gated(before, got.out)
            s, cells = cell.step(t, context.squeeze(1), cells)
            states.append(s)
            contexts.append(context)
            found.append(got)

        def joined(of: Callable[[Attended], Tensor | None]) -> Tensor | None:
            parts = [part for got in found if (part := of(got)) is not None]
            return torch.cat(parts, dim=1) if parts else None

        return DecoderOutput(
            self._read(torch.stack(states, dim=1), y, torch.cat(contexts, dim=1)),
            joined(lambda got: got.weights) if need.weights else None,
            joined(lambda got: got.log_prob),
            joined(lambda got: got.entropy),
        )

    def init_state(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses)

    def step(self, words: TokenBatch, state: RecurrentState, weights: bool = False) -> DecoderStep:
        assert state.memory is not None
        before = state.cells[-1][0].unflatten(0, words.at.shape)
        got, looked = self._look(before, state.memory, state.lengths, state.looked, Need(weights=weights))
        context = self._gated(before, got.out)
        s, cells = self.stack.step(words, state.cells, fed=context.flatten(0, 1))
        out = self._read(s, words.each(words.vectors), context.flatten(0, 1)).unflatten(0, words.at.shape)
        return DecoderStep(out, replace(state, cells=cells, looked=looked), got.weights)

    def _gated(self, before: Tensor, found: Tensor) -> Tensor:  # "b n h", "b n v"
        """β ∘ ẑ: how much of the picture the next word is about."""
        return torch.sigmoid(self.gate(before)) * found

    def _read(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        return y + self.of_state(s) + self.of_context(context)


def _expected(got: Attended, memory: KVCache, mixed: Tensor) -> Attended:  # mixed "b 1 1"
    """The expectation of what was drawn, for these pictures."""
    assert got.weights is not None
    assert got.log_prob is not None
    out = torch.where(mixed, got.weights.to(memory.values.dtype) @ memory.values, got.out)
    return got._replace(out=out, log_prob=got.log_prob.masked_fill(mixed.squeeze(-1), 0.0))


class ShowAttendTell(nn.Module):
    """p(y_t | y_<t, a) = softmax(L_o (E y_{t−1} + L_h h_t + L_z ẑ_t)), a = encoder(x)  (Xu et al. 2015).

    `encoder` is any module that makes of pictures a map "b d h w" or rows "b n d": its places are the annotation
    vectors. How wide they are is told by its attribute out_features or out_channels, or found by calling it once with
    `example`, a batch of pictures. `attention` is "soft", "hard" or a factory like those of MECHANISMS: a soft one
    mixes all places and is trained by its likelihood and `regard.losses.doubly_stochastic`; a hard one goes to one
    place, drawn while it is trained, by `regard.losses.reinforce`, and the likeliest afterwards.

    `baseline` is a moving average of log p of a word, which a training keeps for REINFORCE, at first that of a guess:
    it is saved with the weights, so that a training goes on with it. `rates` tells a training which parts learn slowly.
    """

    baseline: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        vocabulary: int,
        *,
        width: int = 64,
        hidden: int = 128,
        attention: str | Factory = "soft",
        expected: float = 0.5,
        dropout: float = 0.0,
        padding: int = 0,
        example: Tensor | None = None,
    ) -> None:
        super().__init__()
        checks.sizes("ShowAttendTell", vocabulary=vocabulary, width=width, hidden=hidden)
        if not 0 <= expected <= 1:
            raise ValueError(f"expected must be a chance from 0 to 1, got {expected}; the paper has expected=0.5")
        if isinstance(attention, str):
            checks.known("attention", attention, ATTENTIONS)
        make = ATTENTIONS[attention] if isinstance(attention, str) else attention
        self.encoder = encoder
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=padding)
        self.decoder = CaptionDecoder(width, wide(encoder, example), hidden, attention=make, expected=expected)
        learns = {"decoder.gate": True, "decoder.attention": any(True for _ in self.decoder.attention.parameters())}
        self.rates = {name: _SLOW for name, there in learns.items() if there}
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, vocabulary)
        self.register_buffer("baseline", torch.tensor(-math.log(vocabulary)))
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        nn.init.zeros_(self.embedding.weight[padding].data)

    def encode(self, images: Tensor) -> tuple[Encoded, Tensor, tuple[int, int] | None]:  # "b …" -> "b n d", "b"
        """Annotation vectors with their mean, how many there are of each picture, and how they lie."""
        a, grid = annotated(self.encoder(images), self.decoder.bridge.linear.in_features)
        lengths = torch.full((len(a),), a.shape[1], device=a.device)
        return Encoded(a, a.mean(1)), lengths, grid

    def teacher_force(
        self, images: Tensor, target: Tensor, need: Need = NOTHING
    ) -> DecoderOutput:  # "b …", "b t" -> "b t d"
        """What the vocabulary layer reads at every step of captions that are known; the target starts with BOS."""
        encoded, lengths, grid = self.encode(images)
        y = self.dropout(self.embedding(target))
        # what is aligned is put together at its end, when it must be known how places lie
        with _lying(grid), observer.aligned():
            taught = self.decoder.teacher_force(y, encoded, lengths, need)
        return taught._replace(states=self.dropout(taught.states))

    def init_state(self, images: Tensor) -> CaptionState:
        """The state before the first word, one caption a picture."""
        encoded, lengths, grid = self.encode(images)
        return CaptionState(self.decoder.init_state(encoded, lengths), grid)

    def step(self, tokens: Tensor, state: CaptionState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        """The logits of the word behind these, and the state with these."""
        with _lying(state.grid):
            made = self.decoder.step(TokenBatch.of(tokens, self.embedding), state.state, weights)
        return Step(LazyLogits.of(self.output, made.out), replace(state, state=made.state), made.weights)

    def forward(self, images: Tensor, target: Tensor) -> Tensor:  # "b …", "b t" -> "b t v"
        return self.output(self.teacher_force(images, target).states)


def _lying(grid: tuple[int, int] | None) -> AbstractContextManager[None]:
    return nullcontext() if grid is None else observer.lying(grid)
