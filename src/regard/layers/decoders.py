"""Recurrent decoders: without attention, Bahdanau's, Luong's.  Each runs over a known target, and goes step by step.

    Bahdanau   c_t = attend(s_{t−1}, h);   s_t = cell([y_{t−1}; c_t], s_{t−1});   r_t = maxout(s_t, y_{t−1}, c_t)
    Luong      s_t = cell([y_{t−1}; a_{t−1}], s_{t−1});   c_t = attend(s_t, h);   a_t = tanh(W_c [c_t; s_t])
    Fixed      s_t = cell([y_{t−1}; c], s_{t−1});   c = the encoder's last state   (Cho et al. 2014)

Bahdanau attends before the step, from the state before it; Luong after the step, from the state after it, and gives
what was found to the next step (input feeding) or not. Without feeding no step depends on what an earlier one found:
then the recurrent layers run over all steps at once, and all steps attend at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import steps
from regard.catalogue import Factory, width
from regard.layers.context import projected
from regard.layers.heard import bare
from regard.layers.recurrent import Bridge, Encoded, Stack, States
from regard.layers.repeated import Repeated
from regard.layers.words import Words
from regard.parts import tap
from regard.parts.call import NOTHING, Attended, Need
from regard.parts.mask import Lengths
from regard.parts.memory import Memory
from regard.parts.read import Sample


class Taught(NamedTuple):
    """What a decoder makes of a source and a known target: "b t …" each."""

    states: Tensor  # "b t r", what the vocabulary layer reads
    weights: Tensor | None = None  # "b t s"
    log_prob: Tensor | None = None  # "b t", of what a hard attention drew
    entropy: Tensor | None = None  # "b t", of what it drew from


@dataclass(frozen=True, eq=False)
class State:
    """Where n hypotheses of each of b sentences stand.  The source is kept once a sentence."""

    lengths: Tensor  # "b"
    memory: Memory | None  # "b s …", what is attended to
    context: Tensor | None  # "b k", what a decoder that does not attend has instead
    cells: States  # "b·n h" each
    count: int  # n
    fed: Tensor | None  # "b·n a", what the last step found, where it is fed to the next
    looked: Any  # the attention's own state: the number of the step, or tensors "b n …"
    projected: bool = False  # are the values of `memory` what the decoder's matrices make of the source?

    def reorder(self, index: Tensor) -> "State":  # "b n2"
        """Slot j of sentence i continues what was slot index[i, j]."""
        first = self.count * torch.arange(len(index), device=index.device).unsqueeze(-1)
        there = torch.arange(len(index), device=index.device).unsqueeze(-1)
        looked = _each(self.looked, lambda part: part[there, index])
        return replace(self._rows((first + index).flatten()), looked=looked, count=index.shape[1])

    def keep(self, index: Tensor) -> "State":  # "b2"
        """These sentences alone."""
        slots = torch.arange(self.count, device=index.device)
        return replace(
            self._rows((self.count * index.unsqueeze(-1) + slots).flatten()),
            lengths=self.lengths[index],
            memory=None if self.memory is None else self.memory.reorder(index),
            context=None if self.context is None else self.context[index],
            looked=_each(self.looked, lambda part: part[index]),
        )

    def _rows(self, rows: Tensor) -> "State":
        return replace(
            self,
            cells=tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.cells),
            fed=None if self.fed is None else self.fed.index_select(0, rows),
        )


def _each(looked: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """An attention's state with every tensor in it changed; the number of a step stays."""
    if isinstance(looked, Tensor):
        return change(looked)
    if isinstance(looked, tuple):
        parts = [_each(part, change) for part in looked]
        return type(looked)(*parts) if hasattr(looked, "_fields") else tuple(parts)
    return looked


class Stepped(NamedTuple):
    """One step of a decoder."""

    out: Tensor  # "b n r"
    state: State
    weights: Tensor | None = None  # "b n s"


class Decoder(nn.Module, ABC):
    """A recurrent decoder of y, "b t e", on an encoded source."""

    out_features: int

    @abstractmethod
    def teach(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> Taught:  # "b t e", "b"
        """All steps, on a target that is known."""

    @abstractmethod
    def start(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> State:
        """Before the first step: one hypothesis a sentence.  `hypotheses`: how many of each will be searched, about."""

    @abstractmethod
    def step(self, words: Words, state: State, weights: bool = False) -> Stepped:
        """One step of every hypothesis, behind the word that it said."""


class Fixed(Decoder):
    """s_t = cell([y_{t−1}; c], s_{t−1}), r_t = tanh(W [s_t; c]), c = the encoder's last state  (Cho et al. 2014)."""

    def __init__(
        self, dim: int, source_dim: int, hidden: int, *, layers: int, cell: str, dropout: float, out_features: int
    ) -> None:
        super().__init__()
        self.stack = Stack(dim, hidden, fed=source_dim, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden + source_dim, out_features)
        self.out_features = out_features

    def teach(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> Taught:
        if need.weights:
            raise _blind()
        context = encoded.summary.unsqueeze(1).expand(-1, y.shape[1], -1)
        s = self.stack.run(torch.cat([y, context], dim=-1), self.bridge(encoded.summary))
        return Taught(self._read(s, context))

    def start(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> State:
        return State(lengths, None, encoded.summary, self.bridge(encoded.summary), 1, None, 0)

    def step(self, words: Words, state: State, weights: bool = False) -> Stepped:
        if weights:
            raise _blind()
        assert state.context is not None
        context = state.context.repeat_interleave(state.count, dim=0)
        s, cells = self.stack.step(words, state.cells, fed=context)
        return Stepped(self._read(s, context).unflatten(0, words.at.shape), replace(state, cells=cells))

    def _read(self, s: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([s, context], dim=-1)))


def _blind() -> ValueError:
    return ValueError("a decoder without attention has no weights; build it with decoder='bahdanau' to see some")


class Unfit(ValueError):
    """An attention that a decoder of these widths cannot use, one step after the other."""


class Attentive(Decoder):
    """What decoders that attend share: the attention, and how one or all queries are put to it."""

    attention: nn.Module

    def _attend_by(self, make: Factory, hidden: int, source_dim: int) -> int:
        """Makes the attention; how wide is what it finds?"""
        self.attention = make(hidden, source_dim)
        if not callable(getattr(self.attention, "remember", None)):
            raise Unfit(f"{type(self.attention).__name__} needs all queries together, and a decoder has one at a time")
        try:
            return width(self.attention, hidden, source_dim)
        except (ValueError, TypeError) as error:
            raise Unfit(f"queries are hidden={hidden} wide, the encoder's states {source_dim}: {error}") from error

    def _draws(self) -> bool:
        """Does the attention draw where to look, so that the loss needs the draw's log-probability?"""
        return self.training and isinstance(getattr(self.attention, "read", None), Sample)

    def _need(self, weights: bool) -> Need:
        return Need(weights=weights, log_prob=self._draws(), entropy=self._draws())

    def _matrices(self) -> Sequence[Tensor]:  # "m k" each
        """All that a step reads what it found by, if that is what it does."""
        return ()

    def _start(
        self, encoded: Encoded, lengths: Tensor, cells: States, hypotheses: int, fed: Tensor | None = None
    ) -> State:
        # a sentence has about as many steps as places
        contexts = hypotheses * encoded.outputs.shape[1]
        made = projected(self.attention, encoded.outputs, self._matrices(), contexts)
        memory = steps.remember(self.attention, encoded.outputs, made)
        return State(lengths, memory, None, cells, 1, fed, self._begin(memory), made is not None)

    def _begin(self, memory: Memory) -> Any:
        return steps.start(self.attention, _beside(memory)) if self._recalls() else 0

    def _recalls(self) -> bool:
        """Does a step of the attention depend on the steps before?"""
        return hasattr(self.attention, "start")

    def _look(self, s: Tensor, memory: Memory, lengths: Tensor, looked: Any, need: Need) -> tuple[Attended, Any]:
        """One query of each of n hypotheses, "b n d" -> "b n v"."""
        mask = Lengths(lengths)
        if self._recalls():
            with tap.aligned(memory):
                got, looked = steps.step(
                    self.attention, s.unsqueeze(2), _beside(memory, s.shape[1]), looked, mask=mask, need=need
                )
            weights = None if got.weights is None else got.weights.squeeze(2)
            return Attended(got.out.squeeze(2), weights), looked
        at = torch.full((s.shape[1],), looked, device=s.device)
        places = torch.arange(len(memory), device=s.device)
        with tap.aligned():
            got = self.attention.attend(s, memory, mask=mask, positions=(at, places), need=need)  # type: ignore[operator]
        return _of_one(got), looked + 1

    def _look_all(
        self, s: Tensor, encoded: Encoded, values: Tensor | None, lengths: Tensor, need: Need
    ) -> Attended:  # "b t d", "b s k", "b s v" -> "b t v"
        """All queries at once, where none depends on what another found."""
        places = tuple(torch.arange(n, device=s.device) for n in (s.shape[1], encoded.outputs.shape[1]))
        with tap.aligned():
            got = self.attention.attend(  # type: ignore[operator]
                s, encoded.outputs, values, mask=Lengths(lengths), positions=places, need=need
            )
        return _of_one(got)


def _of_one(got: Attended) -> Attended:
    """With weights "b t s", the mean of the heads where there are heads."""
    several = got.weights is not None and got.weights.ndim > got.out.ndim
    return got._replace(weights=got.weights.mean(1)) if several and got.weights is not None else got


def _beside(memory: Memory, count: int = 1) -> Memory:
    """The memory of a sentence for each of its hypotheses, "b n s …", without a copy."""
    keys, values = (t.unsqueeze(1).expand(-1, count, -1, -1) for t in (memory.keys, memory.values))
    return Memory(keys, values, memory.positions, _like=memory)


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    """ "b 1 …" of every step -> "b t …"; None where none was asked for."""
    return None if not parts or parts[0] is None else torch.cat(parts, dim=1)  # type: ignore[arg-type]


class Bahdanau(Attentive):
    """c_t = attend(s_{t−1}, h); s_t = cell([y_{t−1}; c_t], s_{t−1}); r_t = max(pairs of W [s_t; y_{t−1}; c_t]).

    (Bahdanau et al. 2015, A.2.2, with the readout of eq. 4: from the new state.)
    """

    def __init__(
        self,
        dim: int,
        source_dim: int,
        hidden: int,
        *,
        attention: Factory,
        layers: int,
        cell: str,
        dropout: float,
        out_features: int,
    ) -> None:
        super().__init__()
        found = self._attend_by(attention, hidden, source_dim)
        self.stack = Stack(dim, hidden, fed=found, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(hidden + dim + found, 2 * out_features)
        self.out_features = out_features

    def teach(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> Taught:
        memory, cells = steps.remember(self.attention, encoded.outputs), self.bridge(encoded.summary)
        looked, cell, need = self._begin(memory), self.stack.steps(y), self._need(need.weights)
        states: list[Tensor] = []
        found: list[Attended] = []
        for t in range(y.shape[1]):
            got, looked = self._look(cells[-1][0].unsqueeze(1), memory, lengths, looked, need)
            s, cells = cell.step(t, got.out.squeeze(1), cells)
            states.append(s)
            found.append(got)
        contexts = torch.cat([got.out for got in found], dim=1)
        return Taught(
            self._read(torch.stack(states, dim=1), y, contexts),
            _joined([got.weights for got in found]),
            _joined([got.log_prob for got in found]),
            _joined([got.entropy for got in found]),
        )

    def start(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> State:
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses)

    def step(self, words: Words, state: State, weights: bool = False) -> Stepped:
        assert state.memory is not None
        before = state.cells[-1][0].unflatten(0, words.at.shape)
        got, looked = self._look(before, state.memory, state.lengths, state.looked, Need(weights=weights))
        context = got.out.flatten(0, 1)
        if state.projected:
            met, read = context.split((len(self.stack.meets), len(self.readout.weight)), dim=-1)
            s, cells = self.stack.step(words, state.cells, met=met)
            of_s, of_y, _ = self._columns()
            out = _maxout(words.each(F.linear(words.vectors, of_y, self.readout.bias)) + F.linear(s, of_s) + read)
        else:
            s, cells = self.stack.step(words, state.cells, fed=context)
            out = self._read(s, words.each(words.vectors), context)
        return Stepped(out.unflatten(0, words.at.shape), replace(state, cells=cells, looked=looked), got.weights)

    def _read(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        """The maxout of the deep output  (Goodfellow et al. 2013)."""
        return _maxout(self.readout(torch.cat([s, y, context], dim=-1)))

    def _columns(self) -> tuple[Tensor, ...]:
        """The matrix of the readout as what meets s, y and the context."""
        hidden, dim = self.stack.rnn.hidden_size, self.stack.dim
        return self.readout.weight.tensor_split((hidden, hidden + dim), dim=1)

    def _matrices(self) -> tuple[Tensor, ...]:
        return (self.stack.meets, self._columns()[2]) if bare(self.readout) else ()


def _maxout(deep: Tensor) -> Tensor:  # "… 2r" -> "… r"
    return deep.unflatten(-1, (-1, 2)).amax(-1)


class Luong(Attentive):
    """s_t = cell([y_{t−1}; a_{t−1}], s_{t−1}); c_t = attend(s_t, h); a_t = tanh(W_c [c_t; s_t])  (Luong et al. 2015).

    With `feeding=False` a_{t−1} is left out of the input, and all steps are computed at once.
    """

    def __init__(
        self,
        dim: int,
        source_dim: int,
        hidden: int,
        *,
        attention: Factory,
        feeding: bool,
        layers: int,
        cell: str,
        dropout: float,
        out_features: int,
    ) -> None:
        super().__init__()
        found = self._attend_by(attention, hidden, source_dim)
        self.feeding = feeding
        self.stack = Stack(dim, hidden, fed=out_features if feeding else 0, layers=layers, cell=cell, dropout=dropout)
        self.bridge = Bridge(source_dim, self.stack)
        self.readout = nn.Linear(found + hidden, out_features)
        self.out_features = out_features

    def teach(self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING) -> Taught:
        cells, need = self.bridge(encoded.summary), self._need(need.weights)
        if not self.feeding:
            s = self.stack.run(y, cells)
            made = projected(self.attention, encoded.outputs, self._matrices(), y.shape[1])
            got = self._look_all(s, encoded, made, lengths, need)
            return Taught(self._read(got.out, s, made is not None), got.weights, got.log_prob, got.entropy)
        memory = steps.remember(self.attention, encoded.outputs)
        looked, cell, a = self._begin(memory), self.stack.steps(y), self._nothing(y)
        read = Repeated(self.readout.weight, self.readout.bias) if bare(self.readout) else self.readout
        states: list[Tensor] = []
        found: list[Attended] = []
        for t in range(y.shape[1]):
            s, cells = cell.step(t, a, cells)
            got, looked = self._look(s.unsqueeze(1), memory, lengths, looked, need)
            a = torch.tanh(read(torch.cat([got.out.squeeze(1), s], dim=-1)))
            states.append(a)
            found.append(got)
        return Taught(
            torch.stack(states, dim=1),
            _joined([got.weights for got in found]),
            _joined([got.log_prob for got in found]),
            _joined([got.entropy for got in found]),
        )

    def start(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> State:
        fed = self._nothing(encoded.outputs) if self.feeding else None
        return self._start(encoded, lengths, self.bridge(encoded.summary), hypotheses, fed)

    def step(self, words: Words, state: State, weights: bool = False) -> Stepped:
        assert state.memory is not None
        s, cells = self.stack.step(words, state.cells, fed=state.fed)
        s = s.unflatten(0, words.at.shape)
        got, looked = self._look(s, state.memory, state.lengths, state.looked, Need(weights=weights))
        a = self._read(got.out, s, state.projected)
        fed = a.flatten(0, 1) if self.feeding else None
        return Stepped(a, replace(state, cells=cells, looked=looked, fed=fed), got.weights)

    def _nothing(self, like: Tensor) -> Tensor:  # -> "b a"
        return like.new_zeros(like.shape[0], self.out_features)

    def _read(self, context: Tensor, s: Tensor, projected: bool) -> Tensor:
        if not projected:
            return torch.tanh(self.readout(torch.cat([context, s], dim=-1)))
        _, of_s = self._columns()
        return torch.tanh(context + F.linear(s, of_s, self.readout.bias))

    def _columns(self) -> tuple[Tensor, ...]:
        """W_c as what meets the context and s."""
        return self.readout.weight.tensor_split((-self.stack.rnn.hidden_size,), dim=1)

    def _matrices(self) -> tuple[Tensor, ...]:
        return self._columns()[:1] if bare(self.readout) else ()
