"""What training asks of a task, and the values that a task answers with.

    work = task.prepare(folder)
    model = work.model()
    for planned in work.batches(epoch):
        loss = work.loss(model, work.batch(planned, rank, world))

The loss that is minimised is Σ total / Σ count over all batches and processes of a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

# Annotations only: a command line reads a task's options before torch is there.
if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class Loss:
    """The sum of a batch's losses, how many they are, and other sums worth a report, where the count divides them."""

    total: Tensor  # scalar, differentiable
    count: int
    sums: Mapping[str, Tensor | float] = field(default_factory=dict)


@dataclass(frozen=True)
class ValidationResult:
    """What a validation found: all values, which of them decides, and an example to look at."""

    values: Mapping[str, float]
    main: str
    higher_is_better: bool
    sample: str = ""

    @property
    def value(self) -> float:
        return self.values[self.main]

    @property
    def reached(self) -> tuple[float, float]:
        """What decides and, among equals, "nll", of which less is better; infinite where that is not told."""
        return self.value, self.values.get("nll", math.inf)


class Loadable(Protocol):
    """A batch: anything that can be moved."""

    def to(self, device: torch.device, /) -> Any: ...


class TrainingProblem(Protocol):
    """A task whose data is ready."""

    @property
    def told(self) -> str:
        """What was read, and what was dropped, for people."""

    @property
    def counted(self) -> str:
        """What `count` counts: "tokens", "images"."""

    def model(self) -> nn.Module:
        """A fresh model, initialised from torch's global generator."""

    def batches(self, epoch: int) -> Sequence[object]:
        """The plan of an epoch: light descriptions of batches, a pure function of the task's seed and the epoch."""

    def batch(self, planned: Any, rank: int, world: int) -> Any:
        """This process's share of a planned batch, rows rank::world, as a Loadable; None if that is no row."""

    def count(self, batch: Any) -> int:
        """How many losses are summed in the total of this batch."""

    def loss(self, model: nn.Module, batch: Any) -> Loss: ...

    def validate(self, model: nn.Module) -> ValidationResult:
        """The model, in evaluation mode and without gradients, on held-out data; all of it in this one process."""


@runtime_checkable
class Announces(Protocol):
    """A task that may take long to prepare."""

    def ahead(self, folder: Path, new: bool) -> str:
        """What `prepare` is about to do, for people; empty if that does not take long."""


@runtime_checkable
class Draws(Protocol):
    """A work whose model is looked at beside its scores: every validation leaves a picture in the run."""

    def picture(self, model: nn.Module, path: Path) -> None:
        """A PNG of what the model, in evaluation mode and without gradients, makes; whole or not at all."""


@runtime_checkable
class Names(Protocol):
    """A work whose samples people can find."""

    def named(self, planned: Sequence[Any]) -> str:
        """Where the samples of these planned batches stand, such as lines of a file; of many, a few."""


@runtime_checkable
class Follows(Protocol):
    """A work whose model keeps something of its weights from step to step, such as their moving average."""

    def follow(self, model: nn.Module) -> None:
        """Once before every update, however many batches it sums and in every process alike."""


@runtime_checkable
class Expects(Protocol):
    """A work whose model keeps what is to be expected of a batch, such as the baseline of REINFORCE."""

    def expect(self, model: nn.Module, sums: Mapping[str, float], count: int) -> None:
        """Once after every update, by the sums of its losses over all batches and processes, in each of them alike."""


class Task(Protocol):
    """A frozen dataclass: its fields are written into the run and must be the same when the run is resumed."""

    @property
    def seed(self) -> int: ...

    def prepare(self, folder: Path, new: bool = True) -> TrainingProblem:
        """Reads the data; what is learned from it (tokens) is saved there, or loaded if the run is not `new`."""
