"""Reads: how do weights take values?  By mixing, or by going to one place: the hard reads."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn import checks


class ReadResult(NamedTuple):
    """What a read took, and, for a hard read, where it went and how likely that was."""

    out: Tensor  # "*b q v"
    place: Tensor | None = None  # "*b q"; -1 where nothing may be looked at
    log_prob: Tensor | None = None  # "*b q"; 0 where nothing may be looked at


class Read(ABC):
    """out = read(weights, v)."""

    hard: bool = True
    # does it draw, so that computing it again must draw the same?
    draws: bool = True

    @abstractmethod
    def take(
        self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None
    ) -> ReadResult:  # "*b q k", "*b k v"
        """Draws from `generator` where the read draws."""

    def settled(self) -> "Read":
        """The read of a layer in evaluation."""
        return self


def _chosen(weights: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The weight at `index` and whether the row may look anywhere."""
    there = weights.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return there, weights.sum(-1) > 0


def _log_prob(weights: Tensor, index: Tensor) -> Tensor:
    """log of the chosen weight among the row's; zero, with zero gradient, for an empty row."""
    there, alive = _chosen(weights, index)
    share = there / weights.sum(-1).masked_fill(~alive, 1.0)
    return torch.where(alive, share, torch.ones_like(share)).log()


def _gather(v: Tensor, index: Tensor, alive: Tensor) -> Tensor:  # "*b k v", "*b q" -> "*b q v"
    lead = torch.broadcast_shapes(v.shape[:-2], index.shape[:-1])
    rows = index.unsqueeze(-1).expand(*lead, -1, v.shape[-1])
    out = v.expand(*lead, -1, -1).gather(-2, rows)
    return torch.where(alive.unsqueeze(-1), out, torch.zeros_like(out))


def _at(weights: Tensor, v: Tensor, index: Tensor) -> ReadResult:
    """The value at `index`, with its log-probability."""
    _, alive = _chosen(weights, index)
    return ReadResult(_gather(v, index, alive), index.masked_fill(~alive, -1), _log_prob(weights, index))


def _nowhere(weights: Tensor, v: Tensor) -> ReadResult:
    """What a hard read takes where there are no keys at all."""
    rows = weights.sum(-1)
    return ReadResult(weights.to(v.dtype) @ v, torch.full_like(rows, -1, dtype=torch.long), rows)


@dataclass(frozen=True)
class WeightedSum(Read):
    """Σ_j w_j v_j  (soft attention, Bahdanau et al. 2015, eq. 5)."""

    hard = False
    draws = False

    def take(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        return ReadResult(weights.to(v.dtype) @ v)


@dataclass(frozen=True)
class Argmax(Read):
    """v at the greatest weight; no gradient reaches the weights but through log_prob."""

    draws = False

    def take(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        return _at(weights, v, weights.argmax(-1)) if weights.shape[-1] else _nowhere(weights, v)


@dataclass(frozen=True)
class Sample(Read):
    """v at j ~ w, with log w_j for REINFORCE  (Xu et al. 2015, hard attention; Williams 1992).

    In evaluation a layer reads at the greatest weight instead.
    """

    def take(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        if not weights.shape[-1]:
            return _nowhere(weights, v)
        noise = torch.empty_like(weights).exponential_(generator=generator)
        # the exponential race: argmax w/e is distributed as w, and needs no row to sum to one
        return _at(weights, v, (weights.detach() / noise).argmax(-1))

    def settled(self) -> Read:
        return Argmax()


def _gumbel(weights: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """softmax((log w + g) / temperature) with Gumbel noise g; zero where w is zero."""
    noise = -torch.empty_like(weights).exponential_(generator=generator).log()
    seen = weights > 0
    logits = torch.where(seen, weights, torch.ones_like(weights)).log() + noise
    least = torch.finfo(weights.dtype).min
    return torch.softmax((logits / temperature).masked_fill(~seen, least), dim=-1).masked_fill(~seen, 0.0)


@dataclass(frozen=True)
class Gumbel(Read):
    """Σ_j softmax((log w + g)/T)_j v_j, g ~ Gumbel: a draw that is smooth  (Jang et al. 2017; Maddison et al. 2017).

    In evaluation a layer reads at the greatest weight instead.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("temperature", self.temperature, "Gumbel")

    def take(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        if not weights.shape[-1]:
            return _nowhere(weights, v)
        relaxed = _gumbel(weights, self.temperature, generator)
        drawn = _at(weights, v, relaxed.argmax(-1))
        return ReadResult(relaxed.to(v.dtype) @ v, drawn.place, drawn.log_prob)

    def settled(self) -> Read:
        return Argmax()


@dataclass(frozen=True)
class StraightThrough(Read):
    """v at the greatest weight, with the gradient of WeightedSum  (Bengio et al. 2013)."""

    draws = False

    def take(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        if not weights.shape[-1]:
            return _nowhere(weights, v)
        best = weights.argmax(-1)
        drawn = _at(weights, v, best)
        _, alive = _chosen(weights, best)
        one = torch.zeros_like(weights).scatter(-1, best.unsqueeze(-1), alive.unsqueeze(-1).to(weights.dtype))
        return ReadResult((one + weights - weights.detach()).to(v.dtype) @ v, drawn.place, drawn.log_prob)


def entropy(weights: Tensor) -> Tensor:  # "*b q k" -> "*b q"
    """−Σ_j w_j log w_j of the rows made to sum to one; zero for a row that may look at nothing."""
    total = weights.sum(-1, keepdim=True)
    share = weights / torch.where(total > 0, total, torch.ones_like(total))
    return torch.special.entr(torch.where(share > 0, share, torch.ones_like(share))).sum(-1)
