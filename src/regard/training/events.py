"""The events that `fit` yields. Plain values: a terminal, a log or a test decides what to do with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from regard.training.protocol import ValidationResult


@dataclass(frozen=True)
class Ahead:
    """A notice before the task prepares its data, if that takes long."""

    text: str


@dataclass(frozen=True)
class Prepared:
    """Data and model are ready; a batch will be timed with each of these thread counts, before Started."""

    run: Path
    parameters: int
    device: str
    threads: Sequence[int]
    summary: str = ""  # summary of the data


@dataclass(frozen=True)
class Started:
    """Everything is ready and the next step is step + 1."""

    run: Path
    parameters: int
    device: str
    processes: int
    threads: int
    # seconds of a step per thread count; empty if the count was given or recorded
    thread_times: Mapping[int, float]
    step: int
    steps: int | None
    batches: int
    resumed: bool
    summary: str = ""  # summary of the data


@dataclass(frozen=True)
class StepLogged:
    """Progress since the last event of this kind."""

    step: int
    steps: int | None
    epoch: float
    loss: float
    lr: float
    norm: float
    tokens_per_second: float
    elapsed: float
    remaining: float | None
    values: Mapping[str, float] = field(default_factory=dict)
    unit: str = "tokens"  # the unit that tokens_per_second counts


@dataclass(frozen=True)
class InterimReport:
    """Progress between two logged steps, at most once per second; no file records it."""

    progress: StepLogged


@dataclass(frozen=True)
class Validated:
    """The score of the weights after `step`, or of the average of several checkpoints."""

    step: int
    score: ValidationResult
    improved: bool
    seconds: float
    of: Literal["step", "average"] = "step"
    is_tie: bool = False  # whether it improved by a lower nll alone


@dataclass(frozen=True)
class Saved:
    path: Path
    step: int


@dataclass(frozen=True)
class Warned:
    text: str


@dataclass(frozen=True)
class Stopped:
    """The last event, with a sentence for people, and further ones about the trained model."""

    step: int
    reason: Literal["done", "minutes", "patience", "interrupted", "nothing left"]
    text: str
    notes: Sequence[str] = ()


Event = Ahead | Prepared | Started | StepLogged | InterimReport | Validated | Saved | Warned | Stopped
