"""load: the predictor of a run, or of a released model, with its weights."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from regard.common import checks
from regard.inference.evaluation import Evaluation, Progress
from regard.inference.predictor import Predictor
from regard.interop.quantize import is_quantized, quantize, quantize_like
from regard.tasks.base import Task, TaskConfig
from regard.tasks.registry import config_from_record, is_released, read_config
from regard.training import checkpoint
from regard.training.model_size import check_model_fits
from regard.training.run_folder import AVERAGE, BEST, LAST, RunRecord
from regard.training.runtime.distributed import join

Weights = Literal["best", "last", "average"]
QUANTIZATIONS = ("int8",)
_RELEASED = "released"
_FILES: dict[str, str] = {"best": BEST, "last": LAST, "average": AVERAGE}


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run with its task, its predictor, its weights, their step, and the number of threads it was trained with.

    A released model has the default options of its task, the weights "released", and the step 0.
    """

    folder: Path
    task: Task[Any, Any]
    predictor: Predictor[Any, Any]
    weights: str
    step: int
    threads: int | None
    notes: tuple[str, ...] = ()  # about entries of a released folder without effect

    @property
    def config(self) -> TaskConfig:
        config: TaskConfig = self.task.config
        return config

    def evaluate(self, options: Any, progress: Progress) -> Evaluation:
        """The scores on held-out data; `options` are those of the task's `Evaluate`."""
        if self.weights == _RELEASED:
            from regard.tasks.pretrained import evaluate_released

            return evaluate_released(self.folder, self.predictor, options, progress)
        return self.task.evaluate(self.predictor, self.folder, options, progress)

    def attack_examples(self, options: Any) -> tuple[Any, Any, str]:
        """Held-out inputs, their targets and the title of the data; `options` are those of the task's `Attack`."""
        if self.weights == _RELEASED:
            typed = "type texts behind it, or " if self.config.input_kind == "text" else ""
            raise ValueError(
                f"{self.folder} is a released model, which has no held-out {self.config.input_kind}s; {typed}attack it "
                "on your own in Python, by regard.attack(regard.load(folder), inputs, targets, attack)"
            )
        return self.task.attack_examples(self.predictor, self.folder, options)


def load(
    folder: Path | str, *, weights: Weights | None = None, device: str = "auto", quantization: str | None = None
) -> Predictor[Any, Any]:
    """The predictor of a run, or of a folder in transformers' layout, its model in evaluation mode.

    `weights` are those of the best validation, which None stands for, of the last step, or their average if one was
    made. `quantization="int8"` rounds them to 8 bits, as `regard.quantize` does.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be the path of a run, got {folder!r}; try regard.load('runs/en-de')")
    return load_run(Path(folder), weights, device, quantization).predictor


def load_run(
    run: Path, weights: Weights | None = None, device: str = "auto", quantization: str | None = None
) -> LoadedRun:
    if quantization is not None:
        checks.known("quantization", quantization, QUANTIZATIONS)
    loaded = _load_released(run, weights) if is_released(run) else _load_trained(run, weights)
    model = loaded.predictor.model.to(join(device).device).eval()
    if quantization is not None and not is_quantized(model):
        quantize(model)
    return loaded


def _load_trained(run: Path, weights: Weights | None) -> LoadedRun:
    record = RunRecord.read(run)
    record.check_files(run)
    config = config_from_record(record, run)
    weights = weights or "best"
    path = weights_path(run, weights)
    task = config.load()
    check_model_fits(task.sketch, config, torch.device("cpu"), training=False)
    predictor = task.predictor(run)
    facts = _load_weights(predictor.model, run, weights, path)
    return LoadedRun(run, task, predictor, weights, facts["step"], record.threads)


def _load_weights(model: nn.Module, run: Path, weights: Weights, path: Path) -> Mapping[str, Any]:
    """The facts of the checkpoint whose weights the model has now; an error names the other weights of the run."""
    try:
        stored = checkpoint.read(path)
        if "quantization" in stored.facts:
            quantize_like(model, stored.under("model."), stored.facts["quantization"])
        checkpoint.load_model(model, stored, path)
        return stored.facts
    except ValueError as error:
        others = [name for name in _saved_weights(run) if name != weights]
        if not others:
            raise
        raise ValueError(f"{error}; or take other weights of the run: --weights {others[0]}") from error


def _load_released(folder: Path, weights: Weights | None) -> LoadedRun:
    if weights is not None:
        raise ValueError(f"weights={weights!r} is for the folder of a run, and {folder} is none; leave it out")
    # the predictors of all tasks
    from regard.tasks.pretrained import load_released

    task, (predictor, notes) = read_config(folder).load(), load_released(folder)
    return LoadedRun(folder, task, predictor, _RELEASED, 0, None, notes)


def weights_path(run: Path, weights: Weights) -> Path:
    """The file of a run that holds these weights."""
    path = run / _FILES[weights]
    if not path.exists():
        names = _saved_weights(run)
        way = f"try --weights {names[0]}" if names else f"train it: regard train --resume {run}"
        raise FileNotFoundError(f"{run} has no {path.name} yet; {way}")
    return path


def _saved_weights(run: Path) -> list[str]:
    return [name for name, file in _FILES.items() if (run / file).exists()]
