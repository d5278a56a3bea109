"""A trained run, ready to translate."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from regard.tasks.interpreter import Interpreter
from regard.tasks.restored import restored
from regard.tasks.translate import Translate
from regard.train import checkpoint
from regard.train.distributed import join
from regard.train.run import AVERAGE, BEST, LAST, Record

Weights = Literal["best", "last", "average"]
_FILES: dict[str, str] = {"best": BEST, "last": LAST, "average": AVERAGE}


@dataclass(frozen=True, eq=False)
class Loaded:
    task: Translate
    interpreter: Interpreter
    step: int


def load(run: Path, weights: Weights, device: str, threads: int | None) -> Loaded:
    """The translator of a run with its weights and vocabularies, on as many threads as it was trained with or given."""
    record = recorded(run)
    if record.kind != "Translate":
        raise ValueError(
            f"{run} is a run of {record.kind}, and this is for translators; "
            "regard predict and regard evaluate take a classifier"
        )
    task, path = restored(Translate, record.task), weighed(run, weights)
    interpreter = task.interpreter(run)
    return Loaded(task, interpreter, weigh(interpreter.model, path, device, threads or record.threads))


def recorded(run: Path) -> Record:
    """What a run says of itself."""
    if not run.is_dir():
        raise FileNotFoundError(f"there is no run {run}; name the folder of a training")
    return Record.read(run)


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
    model.to(join(device).device).eval()
    torch.set_num_threads(threads or torch.get_num_threads())
    return facts["step"]
