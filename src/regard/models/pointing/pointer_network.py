"""PointerNetwork: a decoder whose attention is the answer, a permutation or a choice of the tokens that it reads."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attn import observer, stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import MECHANISMS, Factory
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.mask import BooleanMask
from regard.common import checks
from regard.decoding.protocol import Step
from regard.layers.dropout import Dropout
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.cells import States
from regard.layers.rnn.decoder_base import DecoderOutput, hypothesis_rows, sentence_rows
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import Encoder
from regard.layers.rnn.stack import Bridge, Stack
from regard.models.encoder_decoder import EncoderDecoder, init_embedding

# in place of a probability of zero, also in float64
_LEAST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, eq=False)
class PointerState:
    """The state of n hypotheses for each of b sentences. The source is stored once per sentence."""

    source: Tensor  # "b s"
    left: Tensor  # bool "b n s", positions that have not been pointed at; False behind the end
    memory: KVCache  # "b s …"
    cells: States  # "b·n h" each
    count: int  # n
    time: int  # number of steps that were made

    def reorder(self, index: Tensor) -> "PointerState":  # "b n2"
        left = self.left.gather(1, index.unsqueeze(-1).expand(-1, -1, self.left.shape[-1]))
        return replace(self._rows(hypothesis_rows(index, self.count)), left=left, count=index.shape[1])

    def select_sentences(self, index: Tensor) -> "PointerState":  # "b2"
        rows = self._rows(sentence_rows(index, self.count))
        return replace(rows, source=self.source[index], left=self.left[index], memory=self.memory.reorder(index))

    def _rows(self, rows: Tensor) -> "PointerState":
        return replace(self, cells=tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.cells))


class PointerNetwork(EncoderDecoder):
    """p(y_t | y_<t, x) = softmax_j(v · tanh(W_1 e_j + W_2 d_t)), the weights over the positions j of the source that no
    earlier step has taken  (Vinyals et al. 2015, eq. 3).

    e_j are the states of a recurrent encoder, d_t = cell(y_{t−1}, d_{t−1}) those of a decoder. A token y_{t−1} takes
    its first position that is left; p of a token is the sum over its positions, so that p is a distribution over the
    one vocabulary that source and target share, and zero for tokens that the source does not have. The target ends
    where the end of the source is pointed at. `attention` is a name of MECHANISMS, or a factory like those in it, whose
    weights are the pointers.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        hidden: int = 256,
        layers: int = 1,
        cell: str = "gru",
        attention: str | Factory = "additive",
        dropout: float = 0.2,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.positive_ints("PointerNetwork", vocabulary=vocabulary, width=width, hidden=hidden)
        if hidden % 2:
            raise ValueError(
                f"hidden must be even to be halved over two directions, got {hidden}; try hidden={hidden + 1}"
            )
        if isinstance(attention, str):
            checks.known("attention", attention, MECHANISMS)
        make = MECHANISMS[attention] if isinstance(attention, str) else attention
        self.source = self.target = nn.Embedding(vocabulary, width, padding_idx=padding)
        init_embedding(self.source)
        sizes = {"layers": layers, "cell": cell, "dropout": dropout}
        self.encoder = Encoder(width, hidden // 2, **sizes)  # type: ignore[arg-type]
        self.stack = Stack(width, hidden, **sizes)  # type: ignore[arg-type]
        self.bridge = Bridge(self.encoder.out_features, self.stack)
        self.attention = make(hidden, self.encoder.out_features)
        if not isinstance(self.attention, Attention) or self.attention.read.hard:
            raise ValueError(
                f"attention={attention!r} has no single row of weights that could be the pointer of a step; "
                "try attention='additive' or attention='general'"
            )
        # the states are log p of all tokens
        self.output = nn.Identity()  # type: ignore[assignment]
        self.dropout = Dropout(dropout)

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        state = self.init_state(source, lengths)
        d = self.stack.run(self.dropout(self.target(target)), state.cells)
        # the k-th occurrence of a token in the target takes its k-th position in the source
        occurrence = (source.unsqueeze(1) == source.unsqueeze(2)).tril(-1).sum(-1)  # "b s"
        taken = (target.unsqueeze(2) == source.unsqueeze(1)).cumsum(1) > occurrence.unsqueeze(1)  # "b t s"
        times = torch.arange(target.shape[1], device=d.device)
        weights = self._point(d, state.memory, state.left & ~taken, times)
        return DecoderOutput(
            _token_log_probs(weights, source, len(self.target.weight)), weights if need.weights else None
        )

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> PointerState:
        encoded = self.encoder(self.dropout(self.source(source)), lengths)
        left = inside_lengths(lengths, source.shape[1]).unsqueeze(1)
        memory = stepwise.project_kv(self.attention, encoded.outputs)
        return PointerState(source, left, memory, self.bridge(encoded.summary), 1, 0)

    def step(self, tokens: Tensor, state: PointerState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        d, cells = self.stack.step(DistinctTokens.of(tokens, self.target), state.cells)
        is_token = state.left & (state.source.unsqueeze(1) == tokens.unsqueeze(2))
        left = state.left & ~(is_token & (is_token.cumsum(-1) == 1))
        times = torch.full(tokens.shape[1:], state.time, device=d.device)
        pointed = self._point(d.unflatten(0, tokens.shape), state.memory, left, times)
        log_p = _token_log_probs(pointed, state.source, len(self.target.weight))
        state = replace(state, left=left, cells=cells, time=state.time + 1)
        return Step(log_p, state, pointed if weights else None)

    def _point(self, d: Tensor, memory: KVCache, left: Tensor, times: Tensor) -> Tensor:  # "b n d" -> "b n s"
        """The weights over positions that are left; zeros where none is."""
        assert isinstance(self.attention, Attention)
        positions = times, torch.arange(len(memory), device=d.device)
        with observer.alignment_steps():
            attended: Attended = self.attention.attend(
                d, memory, mask=BooleanMask(left), positions=positions, need=Need(weights=True)
            )
        assert attended.weights is not None
        return attended.weights


def _token_log_probs(weights: Tensor, source: Tensor, vocabulary: int) -> Tensor:  # "b n s", "b s" -> "b n v"
    """log Σ_{j: x_j = w} weights_j, finite also where the sum is zero."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    zeros = weights.new_zeros(*weights.shape[:2], vocabulary, dtype=dtype)
    p = zeros.scatter_add(2, source.unsqueeze(1).expand_as(weights), weights.to(dtype))
    return p.clamp_min(_LEAST).log()
