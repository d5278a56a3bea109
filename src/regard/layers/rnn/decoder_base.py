"""What recurrent decoders share: their state, what they give, and how those that attend put queries to an attention."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import observer, stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import Factory, width
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Lengths
from regard.attn.terms.read import Sample
from regard.layers.rnn.cells import States
from regard.layers.rnn.encoder import Encoded
from regard.layers.rnn.source_projection import projected
from regard.layers.token_batch import TokenBatch


class DecoderOutput(NamedTuple):
    """What a decoder makes of a source and a known target: "b t …" each."""

    states: Tensor  # "b t r", what the vocabulary layer reads
    weights: Tensor | None = None  # "b t s"
    log_prob: Tensor | None = None  # "b t", of what a hard attention drew
    entropy: Tensor | None = None  # "b t", of what it drew from


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """Where n hypotheses of each of b sentences stand.  The source is kept once a sentence."""

    lengths: Tensor  # "b"
    memory: KVCache | None  # "b s …", what is attended to
    context: Tensor | None  # "b k", what a decoder that does not attend has instead
    cells: States  # "b·n h" each
    count: int  # n
    fed: Tensor | None  # "b·n a", what the last step found, where it is fed to the next
    looked: Any  # the attention's own state: the number of the step, or tensors "b n …"
    projected: bool = False  # are the values of `memory` what the decoder's matrices make of the source?

    def reorder(self, index: Tensor) -> "RecurrentState":  # "b n2"
        """Slot j of sentence i continues what was slot index[i, j]."""
        first = self.count * torch.arange(len(index), device=index.device).unsqueeze(-1)
        there = torch.arange(len(index), device=index.device).unsqueeze(-1)
        looked = _each(self.looked, lambda part: part[there, index])
        return replace(self._rows((first + index).flatten()), looked=looked, count=index.shape[1])

    def select_sentences(self, index: Tensor) -> "RecurrentState":  # "b2"
        """These sentences alone."""
        slots = torch.arange(self.count, device=index.device)
        return replace(
            self._rows((self.count * index.unsqueeze(-1) + slots).flatten()),
            lengths=self.lengths[index],
            memory=None if self.memory is None else self.memory.reorder(index),
            context=None if self.context is None else self.context[index],
            looked=_each(self.looked, lambda part: part[index]),
        )

    def _rows(self, rows: Tensor) -> "RecurrentState":
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


class DecoderStep(NamedTuple):
    """One step of a decoder."""

    out: Tensor  # "b n r"
    state: RecurrentState
    weights: Tensor | None = None  # "b n s"


class RecurrentDecoder(nn.Module, ABC):
    """A recurrent decoder of y, "b t e", on an encoded source."""

    out_features: int

    @abstractmethod
    def teacher_force(
        self, y: Tensor, encoded: Encoded, lengths: Tensor, need: Need = NOTHING
    ) -> DecoderOutput:  # "b t e", "b"
        """All steps, on a target that is known."""

    @abstractmethod
    def init_state(self, encoded: Encoded, lengths: Tensor, hypotheses: int = 1) -> RecurrentState:
        """Before the first step: one hypothesis a sentence.  `hypotheses`: how many of each will be searched, about."""

    @abstractmethod
    def step(self, words: TokenBatch, state: RecurrentState, weights: bool = False) -> DecoderStep:
        """One step of every hypothesis, behind the word that it said."""


class IncompatibleAttention(ValueError):
    """An attention that a decoder of these widths cannot use, one step after the other."""


class Attentive(RecurrentDecoder):
    """What decoders that attend share: the attention, and how one or all queries are put to it."""

    attention: nn.Module

    def _attend_by(self, make: Factory, hidden: int, source_dim: int) -> int:
        """Makes the attention; how wide is what it finds?"""
        self.attention = make(hidden, source_dim)
        if not callable(getattr(self.attention, "project_kv", None)):
            raise IncompatibleAttention(
                f"{type(self.attention).__name__} needs all queries together, and a decoder has one at a time"
            )
        try:
            return width(self.attention, hidden, source_dim)
        except (ValueError, TypeError) as error:
            raise IncompatibleAttention(
                f"queries are hidden={hidden} wide, the encoder's states {source_dim}: {error}"
            ) from error

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
    ) -> RecurrentState:
        # a sentence has about as many steps as places
        contexts = hypotheses * encoded.outputs.shape[1]
        made = projected(self.attention, encoded.outputs, self._matrices(), contexts)
        memory = stepwise.project_kv(self.attention, encoded.outputs, made)
        return RecurrentState(lengths, memory, None, cells, 1, fed, self._begin(memory), made is not None)

    def _begin(self, memory: KVCache) -> Any:
        return stepwise.start(self.attention, _beside(memory)) if self._recalls() else 0

    def _recalls(self) -> bool:
        """Does a step of the attention depend on the steps before?"""
        return hasattr(self.attention, "start")

    def _look(self, s: Tensor, memory: KVCache, lengths: Tensor, looked: Any, need: Need) -> tuple[Attended, Any]:
        """One query of each of n hypotheses, "b n d" -> "b n v"."""
        mask = Lengths(lengths)
        if self._recalls():
            with observer.aligned(memory):
                got, looked = stepwise.step(
                    self.attention, s.unsqueeze(2), _beside(memory, s.shape[1]), looked, mask=mask, need=need
                )
            weights = None if got.weights is None else got.weights.squeeze(2)
            return Attended(got.out.squeeze(2), weights), looked
        at = torch.full((s.shape[1],), looked, device=s.device)
        places = torch.arange(len(memory), device=s.device)
        with observer.aligned():
            got = self.attention.attend(s, memory, mask=mask, positions=(at, places), need=need)  # type: ignore[operator]
        return _of_one(got), looked + 1

    def _look_all(
        self, s: Tensor, encoded: Encoded, values: Tensor | None, lengths: Tensor, need: Need
    ) -> Attended:  # "b t d", "b s k", "b s v" -> "b t v"
        """All queries at once, where none depends on what another found."""
        places = tuple(torch.arange(n, device=s.device) for n in (s.shape[1], encoded.outputs.shape[1]))
        with observer.aligned():
            got = self.attention.attend(  # type: ignore[operator]
                s, encoded.outputs, values, mask=Lengths(lengths), positions=places, need=need
            )
        return _of_one(got)


def _of_one(got: Attended) -> Attended:
    """With weights "b t s", the mean of the heads where there are heads."""
    several = got.weights is not None and got.weights.ndim > got.out.ndim
    return got._replace(weights=got.weights.mean(1)) if several and got.weights is not None else got


def _beside(memory: KVCache, count: int = 1) -> KVCache:
    """The memory of a sentence for each of its hypotheses, "b n s …", without a copy."""
    keys, values = (t.unsqueeze(1).expand(-1, count, -1, -1) for t in (memory.keys, memory.values))
    return KVCache(keys, values, memory.positions, _like=memory)
