"""HRAN: attention over the words of each turn and over the turns of a dialogue, both asked by the decoder."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import observer, stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import MECHANISMS, Factory, width
from regard.attn.kv_cache import KVCache
from regard.attn.terms.read import Sample
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.query_pooling import POSITIONAL
from regard.layers.rnn.cells import States
from regard.layers.rnn.decoder_base import DecoderOutput, hypothesis_rows, sentence_rows
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import Encoder
from regard.layers.rnn.stack import Bridge, Stack
from regard.losses.vocabulary import vocabulary_loss
from regard.models.encoder_decoder import embeddings
from regard.models.responding.responder import History, Responder, is_predicted


@dataclass(frozen=True, eq=False)
class HRANState:
    """The state of n hypotheses for each of b dialogues; their turns, the newest first, are stored once."""

    memory: KVCache  # "b·m w …", the keys and values of the words
    word_lengths: Tensor  # "b m"
    turn_counts: Tensor  # "b"
    cells: States  # "b·n h" each
    count: int  # n

    def reorder(self, index: Tensor) -> "HRANState":  # "b n2"
        return replace(self, cells=_select(self.cells, hypothesis_rows(index, self.count)), count=index.shape[1])

    def select_sentences(self, index: Tensor) -> "HRANState":  # "b2"
        return replace(
            self,
            memory=self.memory.reorder(sentence_rows(index, self.word_lengths.shape[1])),
            word_lengths=self.word_lengths[index],
            turn_counts=self.turn_counts[index],
            cells=_select(self.cells, sentence_rows(index, self.count)),
        )


def _select(cells: States, rows: Tensor) -> States:
    return tuple(tuple(part.index_select(0, rows) for part in layer) for layer in cells)


class _NewestFirst(NamedTuple):
    """The turns with words of each dialogue, the newest first, and where each of them stood."""

    tokens: Tensor  # "b m w"
    lengths: Tensor  # "b m"
    speakers: Tensor  # "b m"
    places: Tensor  # "b m"
    counts: Tensor  # "b"


class HRAN(Responder):
    """r_it = Σ_j α_itj h_ij, l_it = GRU(l_(i+1)t, r_it), c_t = Σ_i β_it l_it, s_t = GRU([y_(t−1); c_t], s_(t−1)).

    (Xing et al. 2018, "Hierarchical Recurrent Attention Network for Response Generation".) h_ij are the states of a
    bidirectional GRU at the words of turn i; α attends to the words of each turn and β to the turns, both asked by
    s_(t−1); the GRU over turns runs from the newest to the oldest; p(y_t) = softmax(E tanh(W [s_t; y_(t−1); c_t])).
    The paper's α also reads l_(i+1)t, so that turns are read one after the other; here it does not, and all turns are
    read at once. s_0 = tanh(W h) of the ends of the newest turn. `attention` is a name of MECHANISMS or a factory like
    those in it, for both levels; None is the paper's, additive. A vector of the speaker is added to that of each word.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 128,
        hidden: int = 128,
        cell: str = "gru",
        attention: str | Factory | None = None,
        dropout: float = 0.2,
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.positive_ints("HRAN", vocabulary=vocabulary, width=width, hidden=hidden)
        if hidden % 2:
            raise ValueError(f"hidden must be even to be halved over two directions, got {hidden}; try {hidden + 1}")
        _, self.embedding, self.output = embeddings(vocabulary, vocabulary, width, "all", padding)
        self.speakers = nn.Embedding(2, width)
        nn.init.normal_(self.speakers.weight, std=width**-0.5)
        self.word_encoder = Encoder(width, hidden // 2, cell=cell)
        self.word_attention, words_dim = _mechanism(attention, hidden, self.word_encoder.out_features)
        self.turn_encoder = Encoder(words_dim, hidden, cell=cell, bidirectional=False)
        self.turn_attention, context_dim = _mechanism(attention, hidden, hidden)
        self.stack = Stack(width, hidden, fed=context_dim, cell=cell)
        self.bridge = Bridge(self.word_encoder.out_features, self.stack)
        self.readout = nn.Linear(hidden + width + context_dim, width)
        self.dropout = Dropout(dropout)

    def init_state(self, history: History) -> HRANState:
        return self._start(_newest_first(history))

    def _start(self, turns: _NewestFirst) -> HRANState:
        b, m, _ = turns.tokens.shape
        filled = (turns.lengths.flatten() > 0).nonzero().squeeze(-1)  # "n", the turns with words
        x = self.embedding(turns.tokens) + self.speakers(turns.speakers).unsqueeze(2)
        encoded = self.word_encoder(self.dropout(x).flatten(0, 1)[filled], turns.lengths.flatten()[filled])
        states = encoded.outputs.new_zeros(b * m, *encoded.outputs.shape[1:]).index_copy(0, filled, encoded.outputs)
        # the newest turn of every dialogue is its first one, and has words
        is_newest = filled % m == 0
        memory = stepwise.project_kv(self.word_attention, self.dropout(states))
        return HRANState(memory, turns.lengths, turns.counts, self.bridge(encoded.summary[is_newest]), 1)

    def teacher_force(self, history: History, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        turns = _newest_first(history)
        y = self.dropout(self.embedding(target))
        state = self._start(turns)
        steps, cells = self.stack.steps(y), state.cells
        states, contexts, weights = [], [], []
        with observer.alignment_steps():
            for t in range(target.shape[1]):
                words, read = self._attend(cells[-1][0].unsqueeze(1), state, need)
                context = read.out.flatten(0, 1)
                s, cells = steps.step(t, context, cells)
                states.append(s)
                contexts.append(context)
                if words.weights is not None and read.weights is not None:
                    # "b·m 1 w" and "b 1 m"
                    weights.append(words.weights.view(*turns.lengths.shape, -1) * read.weights.transpose(1, 2))
        out = self._read(torch.stack(states, 1), y, torch.stack(contexts, 1))
        if not weights:
            return DecoderOutput(self.dropout(out))
        b, m, w = history.tokens.shape
        of_turns = torch.stack(weights, 1)  # "b t m2 w"
        places = turns.places[:, None, :, None].expand_as(of_turns)
        whole = of_turns.new_zeros(b, len(weights), m, w).scatter_add(2, places, of_turns)
        return DecoderOutput(self.dropout(out), whole.flatten(2))

    def token_loss(
        self, history: History, target: Tensor, lengths: Tensor, first: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        if bool((first < history.lengths.shape[1]).any()):
            raise ValueError(f"HRAN learns the target alone, got first={first.tolist()}; give the number of turns")
        keep = is_predicted(target, lengths)
        states = self.teacher_force(history, target[:, :-1]).states[keep]
        return vocabulary_loss(self.output, states, target[:, 1:][keep], smoothing=smoothing)

    def forward(self, history: History, target: Tensor) -> Tensor:
        return self.output(self.teacher_force(history, target).states)

    def step(self, tokens: Tensor, state: HRANState) -> Step:
        distinct = DistinctTokens.of(tokens, self.embedding)
        _, read = self._attend(state.cells[-1][0].unflatten(0, tokens.shape), state, NOTHING)
        context = read.out.flatten(0, 1)
        s, cells = self.stack.step(distinct, state.cells, fed=context)
        out = self._read(s, distinct.expand(distinct.vectors), context).unflatten(0, tokens.shape)
        return Step(LazyLogits.of(self.output, out), replace(state, cells=cells, count=tokens.shape[1]))

    def _attend(self, s: Tensor, state: HRANState, need: Need) -> tuple[Attended, Attended]:  # "b n d"
        """The words of every turn, "b·m n v", and the turns, "b n v", attended to from n states."""
        (b, n, _), m = s.shape, state.word_lengths.shape[1]
        q = s.repeat_interleave(m, 0)
        words = _attend_from_start(self.word_attention, q, state.memory, state.word_lengths.flatten(), need)
        rows = words.out.unflatten(0, (b, m)).transpose(1, 2).flatten(0, 1)  # "b·n m v"
        counts = state.turn_counts.repeat_interleave(n)
        turns = self.turn_encoder(rows, counts).outputs
        read = _attend_from_start(self.turn_attention, s.flatten(0, 1).unsqueeze(1), turns, counts, need)
        of_turns = None if read.weights is None else read.weights.squeeze(1).unflatten(0, (b, n))
        return words, Attended(read.out.squeeze(1).unflatten(0, (b, n)), of_turns)

    def _read(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([s, y, context], dim=-1)))


def _attend_from_start(layer: nn.Module, q: Tensor, keys: KVCache | Tensor, lengths: Tensor, need: Need) -> Attended:
    """Attends from position 0 to keys "*b k …"; weights are "*b q k", the mean over heads if there are heads."""
    length = len(keys) if isinstance(keys, KVCache) else keys.shape[-2]
    key_positions = torch.arange(length, device=q.device)
    positions = key_positions.new_zeros(q.shape[-2]), key_positions
    attended: Attended = layer.attend(q, keys, mask=Lengths(lengths), positions=positions, need=need)  # type: ignore[operator]
    if attended.weights is not None and attended.weights.ndim > attended.out.ndim:
        return attended._replace(weights=attended.weights.mean(-3))
    return attended


def _newest_first(history: History) -> _NewestFirst:
    history.check()
    is_empty = history.lengths.flip(1) == 0
    counts = (~is_empty).sum(1)
    max_turns = history.lengths.shape[1] if counts.is_meta else int(counts.max())
    order = is_empty.int().argsort(dim=1, stable=True)[:, :max_turns]
    places = history.lengths.shape[1] - 1 - order
    tokens = history.tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, history.tokens.shape[2]))
    return _NewestFirst(tokens, history.lengths.gather(1, places), history.speakers.gather(1, places), places, counts)


def _mechanism(attention: str | Factory | None, query_dim: int, key_dim: int) -> tuple[nn.Module, int]:
    """The attention of one level, and the width of its output."""
    name = "additive" if attention is None else attention
    if isinstance(name, str):
        checks.known("attention", name, MECHANISMS)
    layer = (MECHANISMS[name] if isinstance(name, str) else name)(query_dim, key_dim)
    reason = (
        "needs all queries together, but a decoder has one at a time"
        if not callable(getattr(layer, "project_kv", None))
        else "carries a state from step to step, and the turns change with every step"
        if hasattr(layer, "start")
        else "weighs keys by their distance from the query, which has no position among the words of other turns"
        if name in POSITIONAL
        else "samples a key, which this model does not learn by"
        if isinstance(getattr(layer, "read", None), Sample)
        else ""
    )
    if reason:
        raise ValueError(f"attention={name!r} cannot read a dialogue: it {reason}; try attention='additive'")
    return layer, width(layer, query_dim, key_dim)
