"""A trained run, ready to answer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

import torch
from torch import nn

from regard.common.dataclass_json import dataclass_from_json
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.training import checkpoint
from regard.training.run_folder import AVERAGE, BEST, LAST, RunRecord
from regard.training.runtime import malloc
from regard.training.runtime.distributed import join

Weights = Literal["best", "last", "average"]
_FILES: dict[str, str] = {"best": BEST, "last": LAST, "average": AVERAGE}


T = TypeVar("T")
A = TypeVar("A")
Task = TypeVar("Task", covariant=True)
By = TypeVar("By", covariant=True)


@dataclass(frozen=True, eq=False)
class Loaded(Generic[Task, By]):
    """The task of a run, what answers for it, and of which step its weights are."""

    task: Task
    by: By
    step: int


def ready(
    of: type[T], made: Callable[[T, Path], A], run: Path, weights: Weights, device: str, threads: int | None
) -> Loaded[T, A]:
    """A run of such a task with its weights, on as many threads as it was trained with or given.

    What answers is its model, or has one, as an interpreter and a sight do; `made` makes it of the task and the run.
    """
    record = recorded(run)
    task, path = dataclass_from_json(of, record.task), weighed(run, weights)
    by = made(task, run)
    model = by if isinstance(by, nn.Module) else by.model  # type: ignore[attr-defined]
    return Loaded(task, by, weigh(model, path, device, threads or record.threads))


def load(run: Path, weights: Weights, device: str, threads: int | None) -> Loaded[Translate, Translator]:
    """The translator of a run."""
    kind = recorded(run).kind
    if kind != "Translate":
        raise ValueError(
            f"{run} is a run of {kind}, and this is for translators; "
            "regard predict and regard evaluate take a classifier"
        )
    return ready(Translate, Translate.interpreter, run, weights, device, threads)


def recorded(run: Path) -> RunRecord:
    """What a run says of itself."""
    if not run.is_dir():
        raise FileNotFoundError(f"there is no run {run}; name the folder of a training")
    return RunRecord.read(run)


def weighed(run: Path, weights: Weights) -> Path:
    """The file of a run that holds these weights."""
    path = run / _FILES[weights]
    if not path.exists():
        there = [name for name, file in _FILES.items() if (run / file).exists()]
        way = f"try --weights {there[0]}" if there else f"train it: regard train --resume {run}"
        raise FileNotFoundError(f"{run} has no {path.name} yet; {way}")
    return path


def weigh(model: nn.Module, path: Path, device: str, threads: int | None) -> int:
    """Gives a model its weights, where it is to compute; of which step they are."""
    facts = checkpoint.load(model, path)
    place = join(device).device
    model.to(place).eval()
    if place.type == "cpu":
        malloc.keep()
    torch.set_num_threads(threads or torch.get_num_threads())
    return facts["step"]
