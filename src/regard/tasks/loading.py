"""load: the predictor of a run, with its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.inference.predictor import Predictor
from regard.tasks.base import TaskConfig
from regard.tasks.registry import task_from_record
from regard.training import checkpoint
from regard.training.run_folder import AVERAGE, BEST, LAST, RunRecord
from regard.training.runtime.distributed import join

Weights = Literal["best", "last", "average"]
_FILES: dict[str, str] = {"best": BEST, "last": LAST, "average": AVERAGE}


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """The options of a run, its predictor, the step of its weights, and the number of threads it was trained with."""

    config: TaskConfig
    predictor: Predictor[Any, Any]
    step: int
    threads: int | None


def load(folder: Path | str, *, weights: Weights = "best", device: str = "auto") -> Predictor[Any, Any]:
    """The predictor of a run, its model in evaluation mode.

    `weights` are those of the best validation, of the last step, or their average if one was made.
    """
    return load_run(Path(folder), weights, device).predictor


def load_run(run: Path, weights: Weights = "best", device: str = "auto") -> LoadedRun:
    record = RunRecord.read(run)
    record.check_files(run)
    config = task_from_record(record, run)
    path = weights_path(run, weights)
    predictor = config.load().predictor(run)
    facts = checkpoint.load(predictor.model, path)
    predictor.model.to(join(device).device).eval()
    return LoadedRun(config, predictor, facts["step"], record.threads)


def weights_path(run: Path, weights: Weights) -> Path:
    """The file of a run that holds these weights."""
    path = run / _FILES[weights]
    if not path.exists():
        names = [name for name, file in _FILES.items() if (run / file).exists()]
        way = f"try --weights {names[0]}" if names else f"train it: regard train --resume {run}"
        raise FileNotFoundError(f"{run} has no {path.name} yet; {way}")
    return path
