"""The beginning of a fit: the folder of a new or an old run, the data, and what to beware of."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from regard.common import atomic_files
from regard.training import checkpoint, folder_lock
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from regard.training.events import Ahead, Warned
from regard.training.protocol import Announces, Task, TrainingProblem
from regard.training.run_folder import LAST, METRICS, RECORD, SAMPLES, VALIDATED, RunRecord
from regard.training.runtime.distributed import Processes


@contextlib.contextmanager
def claimed(run: Path, resume: bool, processes: Processes) -> Iterator[bool]:
    """The folder, shut to other fits while this one lasts, and whether it had to be made."""
    made = not run.exists()
    if not processes.first:
        yield False
        return
    if resume and not run.is_dir():
        raise FileNotFoundError(f"there is no run {run} to resume; name the folder of a training, or start a new one")
    if not resume and ((run / RECORD).exists() or (run / LAST).exists()):
        raise FileExistsError(f"{run} holds a run already; resume it (--resume {run}), or take another folder")
    atomic_files.make_folder(run)
    with folder_lock.locked(run):
        for folder in (run, run / VALIDATED, run / SAMPLES):
            atomic_files.remove_unfinished(folder)
        yield made


@contextlib.contextmanager
def begun(
    task: Task, run: Path, training: TrainingConfig, resume: bool, made: bool, processes: Processes
) -> Iterator[None]:
    """A new run is recorded first, so that all that follows is its own; if it fails before a step it is undone."""
    if resume or not processes.first:
        processes.wait()
        yield
        return
    try:
        RunRecord.of(task, training).write(run)
        processes.wait()
        yield
    except BaseException:
        for name in (RECORD, METRICS):
            (run / name).unlink(missing_ok=True)
        if made:
            shutil.rmtree(run, ignore_errors=True)
        raise


def opened(
    task: Task, run: Path, training: TrainingConfig, resume: bool, processes: Processes
) -> tuple[RunRecord, Checkpoint | None, TrainingProblem]:
    """The record of the run, its last checkpoint if there is one, and the task with its data.

    The first process goes ahead: the others find in the folder what it learned from the data.
    """
    record = RunRecord.read(run)
    stored = None
    if resume:
        if (run / LAST).exists():
            stored = checkpoint.read(run / LAST)
            if "progress" not in stored.facts:
                raise ValueError(
                    f"{run / LAST} holds weights but no progress of a training; put the run's own file back"
                )
        record = record.resumed(task, training, 0 if stored is None else stored.facts["step"], run)
    if not processes.first:
        processes.wait()
    work = task.prepare(run, new=not resume and processes.first)
    if processes.first:
        processes.wait()
    return record, stored, work


def ahead(task: Task, run: Path, resume: bool, processes: Processes) -> Iterator[Ahead]:
    """What takes long before the data is ready."""
    if processes.first and isinstance(task, Announces) and (text := task.ahead(run, new=not resume)):
        yield Ahead(text)


def warnings(run: Path, resume: bool, step: int, training: TrainingConfig, processes: Processes) -> Iterator[Warned]:
    """What whoever began at this step may not have meant."""
    if resume and step == 0:
        yield Warned(f"{run} has no checkpoint yet; it starts over")
    if training.precision == "bfloat16" and processes.device.type == "cpu" and not has_bfloat16():
        yield Warned("this processor has no units for bfloat16: steps take up to 40 times as long; take float32")
    if training.parallel == "shard" and processes.world == 1:
        yield Warned("parallel='shard' with one process shares nothing; start several with torchrun")


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16, of whichever kind it is."""
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()
