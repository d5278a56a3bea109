"""RecurrentLanguageModel: an LSTM or GRU that attends to the keys of its own past  (Daniluk et al. 2017)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from regard.attn.call import NOTHING, Need
from regard.attn.layer import Attention
from regard.attn.mechanisms.key_value import KeyValue
from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.score import Additive
from regard.attn.terms.sequence_masks import Window
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.head_attention import head_attention
from regard.layers.rnn.cells import CELLS, init_orthogonal, run_torch, state_parts
from regard.models.language_model import LanguageModel, LanguageModelOutput, document_mask

# the name of a model that does not attend
NO_ATTENTION = "none"


@dataclass(frozen=True, eq=False)
class RecurrentMemory:
    """The recurrent state behind a segment, and the last `keep` outputs, without gradient."""

    keep: int
    cells: tuple[Tensor, ...] = ()  # h, or h and c, "b layers h" each; none before the first segment
    outputs: Tensor | None = None  # "b m h"


@dataclass(frozen=True, eq=False)
class RecurrentModelState:
    """The state of n hypotheses for each of b prompts."""

    cells: tuple[Tensor, ...]  # "b n layers h" each
    outputs: Tensor  # the last ones, "b n m h"
    known: Tensor  # bool "b n m": prompts may be shorter than m

    def reorder(self, index: Tensor) -> "RecurrentModelState":  # "b n2"
        rows = torch.arange(len(index), device=index.device).unsqueeze(-1)
        return self._map(rows, index)

    def select_sentences(self, index: Tensor) -> "RecurrentModelState":  # "b2"
        return self._map(index)

    def _map(self, *index: Tensor) -> "RecurrentModelState":
        return RecurrentModelState(tuple(cell[index] for cell in self.cells), self.outputs[index], self.known[index])


class RecurrentLanguageModel(LanguageModel):
    """h*_t = tanh(W_r Σ_j a_tj v_j + W_p p_t), [k; v; p]_t = LSTM(E[w_t]), p = softmax(E h*)  (Daniluk et al. 2017, 3).

    a_t = normalize(score(k_t, k_j)) over the `memory` outputs before t. `attention` is a name of MECHANISMS, "none" for
    h*_t = tanh(W h_t), or None for the additive score of the paper. `hidden`, the width of the recurrent state, is
    three times `width` if left out; keys, values and predictions have a third of it each.
    """

    output: nn.Linear

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 128,
        hidden: int | None = None,
        layers: int = 1,
        cell: str = "lstm",
        memory: int = 15,
        attention: str | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = 3 * width if hidden is None else hidden
        checks.known("cell", cell, CELLS)
        checks.positive_ints(
            "RecurrentLanguageModel", vocabulary=vocabulary, width=width, hidden=hidden, layers=layers, memory=memory
        )
        self.memory = memory
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = CELLS[cell](width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        init_orthogonal(self.rnn)
        self.attention: KeyValue | None = None
        if attention == NO_ATTENTION:
            self.predict = nn.Linear(hidden, width)
        else:
            if hidden % 3:
                raise ValueError(
                    f"hidden must split evenly into keys, values and predictions, got {hidden}; "
                    f"try hidden={hidden - hidden % 3 + 3}"
                )
            part = hidden // 3
            layer = head_attention(attention, part) if attention else Attention(Additive(part, part, part))
            assert isinstance(layer, Attention)
            self.attention = KeyValue(layer, parts=3)
            self.read = nn.Linear(part, width, bias=False)
            self.predict = nn.Linear(part, width)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, vocabulary)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        # shared with the input  (Press & Wolf 2017)
        self.output.weight = self.embedding.weight
        nn.init.zeros_(self.output.bias)

    # A text or a segment of it

    def init_memory(self, keep: int | None = None) -> RecurrentMemory:
        return RecurrentMemory(self.memory if keep is None else keep)

    def memory_tensors(self, memory: RecurrentMemory) -> Sequence[Tensor]:
        return [] if memory.outputs is None else [*memory.cells, memory.outputs]

    def memory_of(self, tensors: Sequence[Tensor]) -> RecurrentMemory:
        return RecurrentMemory(self.memory, tuple(tensors[:-1]), tensors[-1])

    def hidden_states(
        self,
        tokens: Tensor,
        memory: RecurrentMemory | None = None,
        need: Need = NOTHING,
        *,
        documents: Tensor | None = None,
    ) -> LanguageModelOutput:
        memory = self.init_memory() if memory is None else memory
        x = self.dropout(self.embedding(tokens))
        outputs, cells = self._run_documents(x, memory.cells, documents)
        past = outputs[:, :0] if memory.outputs is None else memory.outputs.to(outputs.dtype)
        whole = torch.cat([past, outputs], 1)  # "b m+t h"
        m, t = past.shape[1], tokens.shape[1]
        positions = torch.arange(m + t, device=tokens.device)
        mask: Mask = Window(memory.keep - 1, 0)
        if documents is not None and (others := document_mask(documents, t, m)) is not None:
            mask = mask & others
        # the query stands on the position before its own: it attends to the outputs before it
        states, weights = self._predict(outputs, whole, mask, (positions[m:] - 1, positions), need)
        kept = whole[:, max(m + t - memory.keep, 0) :].detach()
        after = replace(memory, cells=tuple(cell.detach() for cell in cells), outputs=kept)
        return LanguageModelOutput(states, after, () if weights is None else (weights.unsqueeze(1),))

    def _run_documents(
        self, x: Tensor, cells: Sequence[Tensor], documents: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:  # "b t d", "b n" -> "b t h"
        """The same as `_run`, with a state of zeros where a document begins."""
        t = x.shape[1]
        if documents is not None and documents.shape[1] <= t:
            raise ValueError(
                f"documents must also name that of the token before the {t} tokens, got {documents.shape[1]} numbers; "
                f"give the last {t + 1}, −1 where there is no token"
            )
        if documents is None:
            begins = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        else:
            begins = documents[:, -t:] != documents[:, -t - 1 : -1]
        cuts = begins.any(0).nonzero().flatten().tolist()
        parts = []
        for start, end in itertools.pairwise(sorted({0, *cuts, t})):
            is_kept = ~begins[:, start].view(-1, 1, 1)
            output, cells = self._run(x[:, start:end], [cell * is_kept for cell in cells])
            parts.append(output)
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)), tuple(cells)

    def _run(self, x: Tensor, cells: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:  # "b t d" -> "b t h"
        """The outputs of all steps, and the recurrent state after them, "b layers h" each."""
        first = [cell.transpose(0, 1).contiguous() for cell in cells]
        arguments = [] if not first else [tuple(first) if state_parts(self.rnn) == 2 else first[0]]
        outputs, last = run_torch(self.rnn, x, *arguments)
        return outputs, tuple(part.transpose(0, 1) for part in (last if isinstance(last, tuple) else (last,)))

    def _predict(
        self,
        outputs: Tensor,
        past: Tensor,
        mask: Mask,
        positions: tuple[Tensor, Tensor] | None,
        need: Need = NOTHING,
    ) -> tuple[Tensor, Tensor | None]:  # "b t h", "b k h" -> "b t d", "b t k"
        """h* of these outputs, which attend to the past."""
        if self.attention is None:
            return self.dropout(torch.tanh(self.predict(outputs))), None
        parts = self.attention.split(outputs)
        assert parts.predict is not None
        if not past.shape[1]:
            return self.dropout(torch.tanh(self.predict(parts.predict))), None
        attended = self.attention.attend(parts.key, past, mask=mask, positions=positions, need=need)
        states = torch.tanh(self.read(attended.out) + self.predict(parts.predict))
        return self.dropout(states), attended.weights

    # Steps

    def init_state(self, tokens: Tensor, lengths: Tensor | None = None) -> RecurrentModelState:
        b, t = tokens.shape
        lengths = torch.full((b,), t, device=tokens.device) if lengths is None else lengths
        count, hidden = self.rnn.num_layers, self.rnn.hidden_size
        empty = self.embedding.weight.new_zeros(b, count, hidden)
        cells = (empty,) * state_parts(self.rnn)
        m = min(self.memory, t)
        outputs = empty.new_zeros(b, m, hidden)
        places = lengths.unsqueeze(-1) - m + torch.arange(m, device=tokens.device)  # "b m"
        is_known = places >= 0
        if t:
            x = self.dropout(self.embedding(tokens))
            packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            _, last = run_torch(self.rnn, packed)
            last = last if isinstance(last, tuple) else (last,)
            is_empty = (lengths == 0).view(-1, 1, 1)
            cells = tuple(part.transpose(0, 1).masked_fill(is_empty, 0.0) for part in last)
            whole, _ = self._run(x, ())
            outputs = whole.gather(1, places.clamp(min=0).unsqueeze(-1).expand(-1, -1, hidden))
        return RecurrentModelState(
            tuple(cell.unsqueeze(1) for cell in cells), outputs.unsqueeze(1), is_known.unsqueeze(1)
        )

    def step(self, tokens: Tensor, state: RecurrentModelState) -> Step:
        b, n = tokens.shape
        x = self.dropout(self.embedding(tokens)).flatten(0, 1).unsqueeze(1)  # "r 1 d"
        output, cells = self._run(x, [cell.flatten(0, 1) for cell in state.cells])
        mask = BooleanMask(state.known.flatten(0, 1).unsqueeze(1))
        states, _ = self._predict(output, state.outputs.flatten(0, 1), mask, None)
        outputs = torch.cat([state.outputs, output.unflatten(0, (b, n))], 2)[:, :, -self.memory :]
        known = torch.cat([state.known, state.known.new_ones(b, n, 1)], 2)[:, :, -self.memory :]
        after = RecurrentModelState(tuple(cell.unflatten(0, (b, n)) for cell in cells), outputs, known)
        return Step(LazyLogits.of(self.output, states.squeeze(1).unflatten(0, (b, n))), after)
