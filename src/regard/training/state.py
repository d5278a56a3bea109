"""TrainingState: the position and the scores of a training, stored with every checkpoint.

Its fields are keys of the JSON in last.safetensors, so they keep their names.
"""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from regard.training.schedule import Plateau, StepEstimate

_MASK = (1 << 64) - 1
_STEPS = ("logged_at", "validated_at", "averaged_at")
_MAX_COUNT = 1 << 53


@dataclass(frozen=True)
class LogWindow:
    """Sums since the last logged step."""

    total: float = 0.0
    count: int = 0
    steps: int = 0
    norm: float = 0.0  # norm of the gradient of the last step
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
    # `ValidationResult.score_key` of the best validation, and the number of validations since then
    best: tuple[float, float] | None = None
    bad: int = 0
    # score_key of the weights in best.safetensors: an average of checkpoints may be better than each of them
    kept: tuple[float, float] | None = None
    plateau: Plateau = field(default_factory=Plateau)
    logged_at: int = 0
    validated_at: int = 0
    averaged_at: int = 0
    # steps whose weights are in validated/, the last `average` of them
    validated: tuple[int, ...] = ()
    window: LogWindow = field(default_factory=LogWindow)
    # decided by the clock: the seconds at which a validation is due, those that the last one took, and the number of
    # steps that minutes allow
    validate_at: float = 0.0
    validation_seconds: float = 0.0
    estimate: StepEstimate | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "TrainingState":
        """The state that `to_dict` gave; raises ValueError if a field is missing, of a wrong type or out of range."""
        import msgspec

        names = {item.name for item in fields(TrainingState)}
        if unknown := sorted(values.keys() - names):
            raise ValueError(f"it has fields that this version does not know: {', '.join(unknown)}")
        if missing := sorted(names - values.keys()):
            raise ValueError(f"it lacks {', '.join(missing)}")
        for name, kind in (("plateau", Plateau), ("window", LogWindow)):
            if isinstance(value := values[name], Mapping) and (
                missing := sorted({item.name for item in fields(kind)} - value.keys())
            ):
                raise ValueError(f"it lacks {', '.join(missing)} in {name}")
        state = msgspec.convert(values, TrainingState)
        state._check()
        return state

    def _check(self) -> None:
        """Raises ValueError unless the numbers fit together."""
        counts = {name: getattr(self, name) for name in ("step", "epoch", "place", "bad", *_STEPS)}
        counts |= {
            "plateau.bad": self.plateau.bad,
            "window.count": self.window.count,
            "window.steps": self.window.steps,
        }
        amounts = {"elapsed": self.elapsed, "validate_at": self.validate_at, "plateau.factor": self.plateau.factor}
        if (estimate := self.estimate) is not None:
            counts |= {"estimate.steps": estimate.steps, "estimate.start": estimate.start}
            amounts |= {"estimate.minutes": estimate.minutes, "estimate.progress": estimate.progress}
        for name, count in counts.items():
            if not 0 <= count < _MAX_COUNT:
                raise ValueError(f"{name} must be from 0 to 2^53, got {reprlib.repr(count)}")
        for name in _STEPS:
            if counts[name] > self.step:
                raise ValueError(f"{name} must be at most the step {self.step}, got {counts[name]}")
        if list(self.validated) != sorted({step for step in self.validated if 0 <= step <= self.step}):
            raise ValueError(f"validated must be rising steps up to {self.step}, got {reprlib.repr(self.validated)}")
        for name, value in amounts.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number from 0, got {value}")


def is_better(key: tuple[float, float], other: tuple[float, float] | None, higher_is_better: bool) -> bool:
    """Whether a score key beats another, or none: by the deciding value, and among equal ones by a lower nll.

    NaN beats nothing but the absence of a score.
    """
    if other is None or math.isnan(other[0]):
        return other is None or not math.isnan(key[0])
    if key[0] == other[0]:
        return key[1] < other[1] or (math.isnan(other[1]) and not math.isnan(key[1]))
    return key[0] > other[0] if higher_is_better else key[0] < other[0]


def derive_seed(*numbers: int) -> int:
    """One seed from several integers, unlike those of nearby integers (SplitMix64, Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = (state ^ (number & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1
