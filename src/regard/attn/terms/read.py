"""Reads: how weights are applied to values. A soft read is the weighted sum, a hard read selects one key."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.common import checks
from regard.kernels.dispatch import autocast_disabled

__all__ = ["Argmax", "Gumbel", "Read", "Sample", "StraightThrough", "WeightedSum"]


class ReadResult(NamedTuple):
    """The values read and, for a hard read, the selected key and its log-probability."""

    out: Tensor  # "*b q v"
    key_index: Tensor | None = None  # "*b q"; -1 if no key is allowed
    log_prob: Tensor | None = None  # "*b q"; 0 if no key is allowed


class Read(ABC):
    """out = read(weights, v)."""

    hard: bool = True
    # whether it samples, so that recomputing it must use the same random numbers
    is_stochastic: bool = True

    @abstractmethod
    def read(
        self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None
    ) -> ReadResult:  # "*b q k", "*b k v"
        """Reads the values; a stochastic read samples from `generator`."""

    def in_eval(self) -> "Read":
        """The read that a layer uses in evaluation mode."""
        return self


def weighted_sum(weights: Tensor, v: Tensor) -> Tensor:  # "*b q k", "*b k v" -> "*b q v"
    """weights · v, of half types in float32: only the sum is rounded."""
    if v.dtype.itemsize >= 4:
        return (weights if weights.dtype == v.dtype else weights.to(v.dtype)) @ v
    with autocast_disabled(v.device):
        return (weights.to(torch.float32) @ v.to(torch.float32)).to(v.dtype)


def _gather(v: Tensor, index: Tensor, has_weight: Tensor) -> Tensor:  # "*b k v", "*b q" -> "*b q v"
    leading = torch.broadcast_shapes(v.shape[:-2], index.shape[:-1])
    rows = index.unsqueeze(-1).expand(*leading, -1, v.shape[-1])
    out = v.expand(*leading, -1, -1).gather(-2, rows)
    return torch.where(has_weight.unsqueeze(-1), out, torch.zeros_like(out))


@dataclass(frozen=True)
class WeightedSum(Read):
    """Σ_j w_j v_j  (soft attention, Bahdanau et al. 2015, eq. 5)."""

    hard = False
    is_stochastic = False

    def read(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        return ReadResult(weighted_sum(weights, v))


class _HardRead(Read):
    """A read that selects one key, with the log-probability of that key."""

    @abstractmethod
    def select(self, weights: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        """The selected keys, "*b q", and the weights "*b q k" of the output; None: the values of these keys."""

    def read(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
        total = weights.sum(-1)
        if not weights.shape[-1]:
            return ReadResult(weighted_sum(weights, v), torch.full_like(total, -1, dtype=torch.long), total)
        index, mixing = self.select(weights, generator)
        has_weight = total > 0
        share = weights.gather(-1, index.unsqueeze(-1)).squeeze(-1) / total.masked_fill(~has_weight, 1.0)
        out = _gather(v, index, has_weight) if mixing is None else weighted_sum(mixing, v)
        # log 1, with zero gradient, for an empty row
        log_prob = torch.where(has_weight, share, torch.ones_like(share)).log()
        return ReadResult(out, index.masked_fill(~has_weight, -1), log_prob)


@dataclass(frozen=True)
class Argmax(_HardRead):
    """v at the greatest weight; gradients reach the weights only through log_prob."""

    is_stochastic = False

    def select(self, weights: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        return weights.argmax(-1), None


@dataclass(frozen=True)
class Sample(_HardRead):
    """v at j ~ w, with log w_j for REINFORCE  (Xu et al. 2015, hard attention; Williams 1992).

    In evaluation a layer reads at the greatest weight instead.
    """

    def select(self, weights: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        # the exponential race: argmax w/e is distributed as w, and needs no row to sum to one
        return (weights.detach() / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1), None

    def in_eval(self) -> Read:
        return Argmax()


@dataclass(frozen=True)
class Gumbel(_HardRead):
    """Σ_j softmax((log w + g)/T)_j v_j, g ~ Gumbel: a differentiable sample  (Jang et al. 2017; Maddison et al. 2017).

    In evaluation a layer reads at the greatest weight instead.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("temperature", self.temperature, "Gumbel")

    def select(self, weights: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        noise = -torch.empty_like(weights).exponential_(generator=generator).log()
        is_positive = weights > 0
        logits = (torch.where(is_positive, weights, torch.ones_like(weights)).log() + noise) / self.temperature
        least = torch.finfo(weights.dtype).min
        relaxed = torch.softmax(logits.masked_fill(~is_positive, least), dim=-1).masked_fill(~is_positive, 0.0)
        return relaxed.argmax(-1), relaxed

    def in_eval(self) -> Read:
        return Argmax()


@dataclass(frozen=True)
class StraightThrough(_HardRead):
    """v at the greatest weight, with the gradient of WeightedSum  (Bengio et al. 2013)."""

    is_stochastic = False

    def select(self, weights: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        index, has_weight = weights.argmax(-1), weights.sum(-1, keepdim=True) > 0
        one_hot = torch.zeros_like(weights).scatter(-1, index.unsqueeze(-1), has_weight.to(weights.dtype))
        return index, one_hot + weights - weights.detach()


def entropy(weights: Tensor) -> Tensor:  # "*b q k" -> "*b q"
    """−Σ_j w_j log w_j of the rows normalized to sum to one; zero for a row without an allowed key."""
    total = weights.sum(-1, keepdim=True)
    share = weights / torch.where(total > 0, total, torch.ones_like(total))
    return torch.special.entr(torch.where(share > 0, share, torch.ones_like(share))).sum(-1)
