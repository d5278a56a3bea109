"""The protocol between training and tasks, and the values that cross it.

    problem = task.prepare(folder)
    model = problem.build_model()
    for planned in problem.plan_epoch(epoch):
        loss = problem.loss(model, problem.load_batch(planned, rank, world))

The minimised loss is Σ total / Σ count over all batches and processes of a step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

# Annotations only: a command line reads a task's options before torch is there.
if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Model = TypeVar("Model", bound="nn.Module")
Batch = TypeVar("Batch", bound="Loadable")


@dataclass(frozen=True)
class Loss:
    """The sum of the losses of a batch, their number, and further sums to report, each divided by that number."""

    total: Tensor  # scalar, differentiable
    count: int
    sums: Mapping[str, Tensor | float] = field(default_factory=dict)


@dataclass(frozen=True)
class ValidationResult:
    """The values of a validation, the name of the deciding one, an example to read, and warnings."""

    values: Mapping[str, float]
    main: str
    higher_is_better: bool
    sample: str = ""
    warnings: Sequence[str] = ()

    @property
    def value(self) -> float:
        return self.values[self.main]

    @property
    def score_key(self) -> tuple[float, float]:
        """The deciding value and, to rank equals, "nll", of which less is better; infinite if there is none."""
        return self.value, self.values.get("nll", math.inf)


@dataclass(frozen=True)
class BaselineReport:
    """The scores of simple models on the data of `validate`, by the names of the models; the metric decides."""

    metric: str
    higher_is_better: bool
    scores: Mapping[str, float]
    advice: str = ""  # options to try where a baseline is better: "--encoder FOLDER"


class Loadable(Protocol):
    """A batch: anything that can be moved to a device."""

    def to(self, device: torch.device, /) -> Any: ...


class TensorBatch:
    """A batch whose class is a dataclass: fields that can move to a device do so."""

    def to(self, device: torch.device) -> Self:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))  # type: ignore[arg-type]
        moved = {name: value.to(device) for name, value in values if hasattr(value, "to")}
        return replace(self, **moved)  # type: ignore[type-var]


class LabelledBatch(TensorBatch):
    """A batch with one loss per label."""

    labels: Tensor  # "b"

    def __len__(self) -> int:
        return len(self.labels)


class TrainingProblem(ABC, Generic[Model, Batch]):
    """A task whose data is ready.

    A resumed run repeats an uninterrupted one exactly if batches follow from `plan_epoch` and the weights alone. A
    problem whose batches depend on more, such as the state of environments that an agent acts in, returns that state
    from `state_dict`; checkpoints hold it, and `load_state_dict` restores it before the next batch is loaded.

    Under torchrun every process has a problem of its own and calls its hooks, except `validate` and `draw_samples`,
    which the first process alone calls. All processes call `state_dict` at the same steps; the value that the first
    one returns is stored, and on resume all of them load it. So the state must either be equal in all processes, or
    `state_dict` must gather it from them (with torch.distributed) and `load_state_dict` must take the part of its own
    rank; otherwise a resumed run differs from an uninterrupted one. With parallel="shard" a process that has no rows of
    a planned batch loads those of rank 0 as well, so a state that every load advances is then not equal in all.
    """

    summary: str
    """The number of examples read, and of those dropped: "29,000 pairs to train on, 1,014 to validate"."""
    unit: str
    """The plural of what `num_terms` counts: "tokens", "images"."""
    shared: Sequence[str] = ()
    """Warnings about examples that files to train, to validate and to test on share."""

    @abstractmethod
    def build_model(self) -> Model:
        """A model with initial weights, drawn from torch's global generator."""

    @abstractmethod
    def plan_epoch(self, epoch: int) -> Sequence[Any]:
        """Light descriptions of the batches of an epoch, a pure function of the task's seed and the epoch."""

    @abstractmethod
    def load_batch(self, planned: Any, rank: int, world: int) -> Batch | None:
        """The rows rank::world of a planned batch; None if that is no row."""

    def num_terms(self, batch: Batch) -> int:
        """The number of losses in the total of this batch; without a definition of its own, the length of the batch."""
        return len(batch)  # type: ignore[arg-type]

    @abstractmethod
    def loss(self, model: Model, batch: Batch) -> Loss: ...

    @abstractmethod
    def validate(self, model: Model) -> ValidationResult:
        """Scores the model, which is in evaluation mode without gradients, on held-out data, in one process.

        Leaves the state of `state_dict` as it is: a run that is made longer validates once more than one that was not.
        Buffers of the model that it changes, such as the number of the best of several networks, are stored with the
        weights that it scored.
        """

    # Hooks

    def before_step(self, model: Model) -> None:
        """Called once before every update, in every process, such as to update an average of the weights."""

    def after_step(self, model: Model, sums: Mapping[str, float], count: int) -> None:
        """Called once after every update, in every process, with the sums of its losses over all processes."""

    def draw_samples(self, model: Model, path: Path) -> bool:
        """Draws outputs of the model, which is in evaluation mode, into a PNG file; returns whether it did.

        The folder of the file exists, and is removed if nothing was drawn into it. An OSError or ImportError becomes a
        warning: a missing picture does not end a training.
        """
        return False

    def locate(self, planned: Sequence[Any]) -> str:
        """The source of these planned batches, such as lines of a file, for an error message."""
        text = ", ".join(" ".join(repr(item).split()) for item in planned)
        return f"batch {text if len(text) <= 300 else text[:300] + '…'}"

    def warnings(self) -> Sequence[str]:
        """Sentences about options that may not be intended for this data."""
        return ()

    def baselines(self) -> BaselineReport | None:
        """The scores of baselines for the end of a training, computed in seconds; None if there are none."""
        return None

    def closing_notes(self) -> Sequence[str]:
        """Sentences for the end of a training, such as about the way the model reads its inputs."""
        return ()

    def resolved_options(self) -> dict[str, Any] | None:
        """Options that only the data could decide, in the layout of TrainableConfig.to_json; None if there are none."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """The state that `load_batch` and `loss` depend on, beside the weights and the seed."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state_dict` returned."""


class TrainableConfig(Protocol):
    """The options of a task, as `fit` uses them; a run records them and is resumed with the same."""

    @property
    def name(self) -> str:
        """The name of the task in run.json."""

    @property
    def seed(self) -> int: ...

    @property
    def run_files(self) -> tuple[str, ...]:
        """Files that `prepare` writes into the folder of a run."""

    @property
    def initial_files(self) -> tuple[str, ...]:
        """The files of `run_files` that a run copies when it starts from these weights, such as tokens and classes."""

    def weight_options(self) -> dict[str, Any]:
        """The options that weights depend on, in the layout of `to_json`; a run that starts with weights has these."""

    def to_json(self) -> dict[str, Any]:
        """All options, resolved, as values of JSON; options of the model are nested under "model"."""

    def preparation_notice(self, folder: Path, new: bool) -> str:
        """A sentence about the work of `prepare`, if it takes long; otherwise empty."""

    def prepare(self, folder: Path, new: bool = True) -> TrainingProblem[Any, Any]:
        """Reads the data. What is learned from it (a vocabulary) is saved in the folder, or if not `new` loaded."""
