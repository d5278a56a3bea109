"""How far a training has come: a value, stored with every checkpoint, and all that resuming needs beside it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from regard.training.schedule import Plateau

_MASK = (1 << 64) - 1
_REACHED = ("best", "kept")


@dataclass(frozen=True)
class LogWindow:
    """Sums since the last line of progress."""

    total: float = 0.0
    count: int = 0
    steps: int = 0
    norm: float = 0.0  # of the last step
    sums: Mapping[str, float] = field(default_factory=dict)

    def add(self, total: float, count: int, norm: float, sums: Mapping[str, float]) -> "LogWindow":
        joined = {name: self.sums.get(name, 0.0) + value for name, value in sums.items()}
        return LogWindow(self.total + total, self.count + count, self.steps + 1, norm, {**self.sums, **joined})


@dataclass(frozen=True)
class TrainingState:
    """Steps done, the next batch (epoch, place), the scores so far, and seconds spent."""

    step: int = 0
    epoch: int = 0
    place: int = 0
    elapsed: float = 0.0
    # what the best validation reached (`Score.reached`), and validations since then
    best: tuple[float, float] | None = None
    bad: int = 0
    # that of what lies in best.safetensors: an average of checkpoints may be better than any of them
    kept: tuple[float, float] | None = None
    plateau: Plateau = field(default_factory=Plateau)
    logged_at: int = 0
    validated_at: int = 0
    averaged_at: int = 0
    # steps whose weights lie in validated/, the last `average` of them
    validated: tuple[int, ...] = ()
    window: LogWindow = field(default_factory=LogWindow)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> "TrainingState":
        plain = {**told, "validated": tuple(told["validated"]), **{name: _reached(told[name]) for name in _REACHED}}
        return replace(TrainingState(**plain), plateau=Plateau(**told["plateau"]), window=LogWindow(**told["window"]))


def _reached(told: Any) -> tuple[float, float] | None:
    """As JSON has it; older checkpoints have the deciding value alone."""
    return None if told is None else tuple(told) if isinstance(told, list) else (told, math.inf)


def better(one: tuple[float, float], than: tuple[float, float] | None, higher: bool) -> bool:
    """By the deciding value, which is better `higher` or lower; of equals the one of lower nll.

    NaN is worse than anything but nothing.
    """
    if than is None or math.isnan(than[0]):
        return than is None or not math.isnan(one[0])
    if one[0] == than[0]:
        return one[1] < than[1] or (math.isnan(than[1]) and not math.isnan(one[1]))
    return one[0] > than[0] if higher else one[0] < than[0]


def derive_seed(*numbers: int) -> int:
    """One seed out of several whole numbers, unlike that of any near ones (SplitMix64, Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = (state ^ (number & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1
