"""The beginning and the end of a fit: opening the run folder, the optimizer, and sentences."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.tasks.task import Score, Task, Work
from regard.train import checkpoint, files
from regard.train.checkpoint import Stored
from regard.train.distributed import Processes
from regard.train.events import Stopped
from regard.train.progress import Progress
from regard.train.run import LAST, RECORD, Record
from regard.train.training import Training


def opened(
    task: Task, run: Path, training: Training, resume: bool, processes: Processes
) -> tuple[Record, Stored | None, Work]:
    """The record of a new or an old run, its last checkpoint if there is one, and the task with its data.

    The first process goes ahead: the others find in the folder what it learned from the data.
    """
    new = resume is False and not run.exists()
    if processes.first and not resume:
        if (run / RECORD).exists() or (run / LAST).exists():
            raise FileExistsError(f"{run} holds a run already; resume it (--resume {run}), or take another folder")
        files.folder(run)
        Record.of(task, training).write(run)
    if not processes.first:
        processes.wait()
    record = Record.read(run)
    stored = None
    if resume:
        if processes.first:
            files.sweep(run)
        if (run / LAST).exists():
            stored = checkpoint.read(run / LAST)
            if "progress" not in stored.facts:
                raise ValueError(f"{run / LAST} holds weights but no progress of a training; restore the checkpoint")
        record = record.resumed(task, training, 0 if stored is None else stored.facts["step"], run)
    try:
        work = task.prepare(run)
    except BaseException:
        # A run that never began must not stand in the way of the next try.
        if processes.first and not resume:
            (run / RECORD).unlink(missing_ok=True)
            if new:
                shutil.rmtree(run, ignore_errors=True)
        raise
    if processes.first:
        processes.wait()
    return record, stored, work


def optimizer(model: nn.Module, training: Training, device: torch.device) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019); only matrices decay. Fused, a step costs a seventh of the default's."""
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in learned if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=training.lr, betas=training.betas, fused=fused)


def steps_in_all(training: Training, batches: int) -> int | None:
    """Where steps and epochs end, whichever is first; None if minutes alone do."""
    limits = [] if training.steps is None else [training.steps]
    if training.epochs is not None:
        limits.append(max(1, round(training.epochs * batches / training.accumulate)))
    return min(limits, default=None)


def facts(step: int, score: Score) -> dict[str, Any]:
    return {"step": step, "score": dict(score.values), "main": score.main}


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def diverged(loss: float, norm: float, step: int, epoch: int, planned: Sequence[object], training: Training) -> str:
    said = ", ".join(" ".join(repr(item).split()) for item in planned)
    said = said if len(said) <= 300 else said[:300] + "…"
    clip = "set a clip such as clip=1.0" if training.clip is None else f"a smaller clip than {training.clip}"
    return (
        f"step {step} in epoch {epoch} has loss {loss:g} and gradient norm {norm:g}, on batch {said}; the weights "
        f"and checkpoints are as before it: resume with a smaller lr than {training.lr:g} or {clip}, or mend the data"
    )


def stopped(
    reason: str, nothing: bool, progress: Progress, steps: int | None, training: Training, run: Path
) -> Stopped:
    """The last event."""
    step = progress.step
    of = f"step {step}" if steps is None else f"step {step} of {steps}"
    more = {
        "done": (f"{of} is done", "raise steps or epochs"),
        "minutes": (f"{training.minutes:g} minutes have passed, at {of}" if training.minutes else "", "raise minutes"),
        "patience": (f"{progress.bad} validations in a row brought no improvement, at {of}", "raise patience"),
        "interrupted": (f"interrupted after {of}", f"go on with --resume {run}"),
    }
    said, way = more[reason]
    if nothing:
        return Stopped(step, "nothing left", f"nothing is left to train: {said}; {way} to go on")
    return Stopped(step, reason, said if reason != "interrupted" else f"{said}; {way}")  # type: ignore[arg-type]
