"""Scalings of rotary positions: other frequencies, for texts that are longer than those of the training.

Pair k of the r rotated channels turns by ω_k = base^(−2k/r) per position. A scaling slows pairs down and may multiply
cosines and sines by an amplitude. Each is a frozen value, `Rotary(width, scaling=YaRNScaling(4.0, 4096))`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.common import checks

__all__ = [
    "DynamicNTKScaling",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPEScaling",
    "NTKScaling",
    "ProportionalScaling",
    "RotaryScaling",
    "YaRNScaling",
]

Length = int | Tensor  # tokens of a call, or "*b 1 1": of each of its rows


def _powers(dim: int, base: float | Tensor, device: torch.device) -> Tensor:  # "r/2" or "*b 1 r/2"
    return base ** (torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)


def rotary_rates(dim: int, base: float | Tensor, device: torch.device) -> Tensor:  # "r/2" or "*b 1 r/2"
    """ω_k = base^(−2k/r) in float32, with the operations of released models: far angles show every rounding."""
    return 1.0 / _powers(dim, base, device)


class RotaryScaling(ABC):
    """The frequencies of a Rotary. Those of some depend on the length of the text, which `length` can fix."""

    @abstractmethod
    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:  # "r/2" or "*b 1 r/2"
        """The angle per position of every pair, of a call with this many tokens."""

    @property
    def amplitude(self) -> float:
        """The factor on cosines and sines, of queries and of keys."""
        return 1.0

    @property
    def depends_on_length(self) -> bool:
        """Whether frequencies differ from call to call, so that a step need not equal the whole."""
        return False

    def shared_length(self, length: int) -> int:
        """A length with the same frequencies: that of all calls that share them."""
        return 1

    def check(self, dim: int, base: float) -> None:  # noqa: B027 -- most fit any width
        """Raises if these frequencies cannot be those of `dim` rotated channels."""


def _check_original(scaling: RotaryScaling, original: int, length: int | None = None) -> None:
    checks.positive_ints(type(scaling).__name__, original=original, length=1 if length is None else length)


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """ω′ = ω / s: positions are interpolated between those of the training  (Chen et al. 2023)."""

    factor: float

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "LinearScaling")

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        return rotary_rates(dim, base, device) / self.factor


@dataclass(frozen=True)
class ProportionalScaling(RotaryScaling):
    """ω′ = ω / s for the fastest `share` of the pairs and 0 for the others, which only match  (Barbero et al. 2024).

    The pairs are those of the whole width, unlike `Rotary(width, rotary_dim=…)`, which leaves out channels.
    """

    share: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "ProportionalScaling")
        checks.number("share", self.share, "ProportionalScaling", "0.25")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1 for ProportionalScaling, got {self.share}; try share=0.25")

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        rates = rotary_rates(dim, base, device) / self.factor
        return torch.where(torch.arange(dim // 2, device=device) < int(self.share * dim // 2), rates, 0.0)


def _ntk_base(base: float, dim: int, growth: float | Tensor) -> float | Tensor:
    """The base with which the slowest pair turns `growth` times as slowly, and the fastest as before."""
    return base * growth ** (dim / max(dim - 2, 1))


@dataclass(frozen=True)
class NTKScaling(RotaryScaling):
    """base′ = base · s^(r/(r−2)): the slowest pair turns s times as slowly, the fastest as before  (bloc97 2023)."""

    factor: float

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "NTKScaling")

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        return rotary_rates(dim, _ntk_base(base, dim, self.factor), device)


@dataclass(frozen=True)
class DynamicNTKScaling(RotaryScaling):
    """base′ = base · (s n/L − s + 1)^(r/(r−2)) beyond the L = `original` tokens of the training  (emozilla 2023).

    n is `length`; without it, the greatest position that a call rotates, plus one, in each row, padding included.
    Keys in a cache keep the rotation of their call, as in transformers. So beyond L steps differ from the whole text,
    whose keys all turn at the rates of the last position; a `length` makes them equal.
    """

    factor: float
    original: int
    length: int | None = None

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "DynamicNTKScaling")
        _check_original(self, self.original, self.length)

    @property
    def depends_on_length(self) -> bool:
        return self.length is None

    def shared_length(self, length: int) -> int:
        return max(length, self.original)

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        n = length if self.length is None else self.length
        n = n.clamp(min=self.original) if isinstance(n, Tensor) else max(n, self.original)
        return rotary_rates(dim, _ntk_base(base, dim, self.factor * n / self.original - (self.factor - 1)), device)


@dataclass(frozen=True)
class YaRNScaling(RotaryScaling):
    """ω′ = (1 − γ) ω / s + γ ω, γ a ramp over the pairs; cosines and sines times 0.1 ln s + 1  (Peng et al. 2023, 3).

    A pair that turns `fast` times or more over the `original` tokens of the training keeps ω (γ = 1), one that turns
    `slow` times or less has ω / s, and γ falls evenly with the number of the pair between them; `truncate` rounds the
    two ends to whole pairs. `attention_factor` replaces 0.1 ln s + 1.
    """

    factor: float
    original: int
    fast: float = 32.0
    slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "YaRNScaling")
        _check_original(self, self.original)
        checks.number("fast", self.fast, "YaRNScaling", "32.0")
        checks.positive("slow", self.slow, "YaRNScaling")
        if not self.slow < self.fast:
            raise ValueError(
                f"fast must be more turns than slow for YaRNScaling, got fast={self.fast}, slow={self.slow}; "
                "try fast=32.0, slow=1.0"
            )
        if self.attention_factor is not None:
            checks.positive("attention_factor", self.attention_factor, "YaRNScaling")

    @property
    def amplitude(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def check(self, dim: int, base: float) -> None:
        if base <= 1:
            raise ValueError(f"base must be above 1 for YaRNScaling, which counts turns, got {base}; try base=10000.0")

    def _pair(self, turns: float, dim: int, base: float) -> float:
        """The pair, counted from 0 with fractions, that turns so often over the original tokens."""
        return dim * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(base))

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        low, high = self._pair(self.fast, dim, base), self._pair(self.slow, dim, base)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        high = high + 0.001 if low == high else high
        pairs = torch.arange(dim // 2, dtype=torch.float32, device=device)
        keep = 1 - ((pairs - low) / (high - low)).clamp(0, 1)
        powers = _powers(dim, base, device)
        return 1.0 / (self.factor * powers) * (1 - keep) + 1.0 / powers * keep


@dataclass(frozen=True)
class LongRoPEScaling(RotaryScaling):
    """ω′_k = ω_k / λ_k, λ searched for each pair; cosines and sines times √(1 + ln s / ln L)  (Ding et al. 2024, 3).

    λ is `long` for texts of more than L = `original` tokens and `short` for others. s = `factor` is how many times as
    long the longest text is; `attention_factor` replaces the root. The length is `length`; without it, the greatest
    position that a call rotates, plus one, in each row, padding included. Keys in a cache keep the rotation of their
    call: a text that grows beyond L step by step mixes both, unlike the whole text; a `length` makes them equal.
    """

    factor: float
    original: int
    short: tuple[float, ...]
    long: tuple[float, ...]
    attention_factor: float | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "LongRoPEScaling")
        _check_original(self, self.original, self.length)
        if self.attention_factor is not None:
            checks.positive("attention_factor", self.attention_factor, "LongRoPEScaling")
        if self.attention_factor is None and self.original < 2:
            raise ValueError(
                f"original must be 2 tokens or more for the amplitude of LongRoPEScaling, got {self.original}; "
                "give attention_factor=1.0"
            )
        for name in ("short", "long"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            for value in values:
                checks.positive(f"{name} factors", value, "LongRoPEScaling")

    @property
    def amplitude(self) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original)) if self.factor > 1 else 1.0

    @property
    def depends_on_length(self) -> bool:
        return self.length is None

    def shared_length(self, length: int) -> int:
        return self.original + (length > self.original)

    def check(self, dim: int, base: float) -> None:
        if not len(self.short) == len(self.long) == dim // 2:
            raise ValueError(
                f"short and long must have a factor for each of the {dim // 2} pairs of {dim} rotated channels, got "
                f"{len(self.short)} and {len(self.long)}; give {dim // 2} of each"
            )

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        n = length if self.length is None else self.length
        powers = _powers(dim, base, device)
        if isinstance(n, Tensor):
            short, long = (torch.tensor(each, device=device) for each in (self.short, self.long))
            return 1.0 / (torch.where(n > self.original, long, short) * powers)
        return 1.0 / (torch.tensor(self.long if n > self.original else self.short, device=device) * powers)


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """ω′ = (1 − γ) ω / s + γ ω, γ = (turns − low) / (high − low), cut to 0 … 1  (Grattafiori et al. 2024, 3.4.3).

    A pair turns L ω / 2π times over the L = `original` tokens of the training.
    """

    factor: float
    low: float
    high: float
    original: int

    def __post_init__(self) -> None:
        checks.positive("factor", self.factor, "Llama3Scaling")
        for name in ("low", "high", "original"):
            checks.number(name, getattr(self, name), "Llama3Scaling")
        if not 0 < self.low < self.high or self.original < 1:
            raise ValueError(
                f"Llama3Scaling must have 0 < low < high and original tokens of 1 or more, got {self}; "
                "try Llama3Scaling(8.0, 1.0, 4.0, 8192)"
            )

    def rates(self, dim: int, base: float, length: Length, device: torch.device) -> Tensor:
        rates = rotary_rates(dim, base, device)
        keep = ((self.original * rates / (2 * math.pi) - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - keep) * rates / self.factor + keep * rates
