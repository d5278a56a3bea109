"""The setup of a training: the folder of a new or a resumed run, its record, the data, and warnings."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.common import atomic_files
from regard.training import checkpoint, folder_lock, initial_run
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from regard.training.events import Warned
from regard.training.folder_lock import LockedFolder
from regard.training.protocol import TrainableConfig, TrainingProblem
from regard.training.run_folder import (
    AVERAGE,
    BEST,
    CONFIG,
    EARLIER_BEST,
    INITIAL,
    LAST,
    MEMORY,
    METRICS,
    RECORD,
    SAMPLES,
    TENSORBOARD,
    VALIDATED,
    InitialRun,
    RunRecord,
    check_can_train,
    check_holds_no_run,
)
from regard.training.runtime.distributed import Processes
from regard.training.state import TrainingState

# beside the record and the last checkpoint
_TRAINING_FILES = (CONFIG, METRICS, MEMORY, BEST, AVERAGE, VALIDATED, SAMPLES, TENSORBOARD, INITIAL)


@contextlib.contextmanager
def locked_folder(config: TrainableConfig, run: Path, resume: bool, processes: Processes) -> Iterator[LockedFolder]:
    """Locks the folder of the run until the training ends."""
    created = not run.exists()
    if not processes.is_first:
        yield LockedFolder(run)
        return
    if resume and not run.is_dir():
        raise FileNotFoundError(f"there is no run {run} to resume; name the folder of a training, or start a new one")
    if not resume:
        check_overwrites_nothing(config, run)
    atomic_files.make_folder(run)
    with folder_lock.lock_folder(run) as folder:
        if not resume:
            # another training may have come and gone before the lock
            check_overwrites_nothing(config, run)
        for path in (run, run / VALIDATED, run / SAMPLES):
            atomic_files.remove_unfinished(path)
        yield replace(folder, created=created)


def check_overwrites_nothing(config: TrainableConfig, run: Path) -> None:
    """Raises if the folder holds a run, or a file that a new run of the task would write."""
    check_holds_no_run(run)
    for name in (*_TRAINING_FILES, *config.run_files):
        if (run / name).exists():
            kind = "folder" if (run / name).is_dir() else "file"
            raise FileExistsError(
                f"{run} has a {kind} {name}, which a training would write over; name another folder by --out"
            )


@contextlib.contextmanager
def recorded_run(
    config: TrainableConfig,
    folder: LockedFolder,
    training: TrainingConfig,
    resume: bool,
    processes: Processes,
    initial: InitialRun | None = None,
) -> Iterator[None]:
    """Records a new run before it writes any other file; if it fails within, all its files are removed.

    `initial` is the run that it starts from. If another folder has taken the place of this one, its files are not
    touched.
    """
    run = folder.path
    if resume or not processes.is_first:
        processes.barrier()
        yield
        return
    try:
        RunRecord.of(config, training, initial).write(run)
        if initial is not None:
            initial_run.copy_vocabularies(initial, run)
        processes.barrier()
        yield
    except BaseException:
        if not folder.is_in_place:
            raise
        # the record last: as long as it is there, the other files are known to belong to the run
        for name in (CONFIG, METRICS, *config.run_files, RECORD):
            (run / name).unlink(missing_ok=True)
        for path in [run] if folder.created else [run / TENSORBOARD, run / INITIAL]:
            shutil.rmtree(path, ignore_errors=True)
        raise


def load_everything(
    config: TrainableConfig, run: Path, training: TrainingConfig, resume: bool, processes: Processes
) -> tuple[RunRecord, Checkpoint | None, TrainingState, TrainingProblem[Any, Any]]:
    """The record of the run, its last checkpoint if there is one, the state of the training, and the task with data.

    The first process prepares the data before the others, which load from the folder what it learned.
    """
    record = RunRecord.read(run)
    stored, state = None, TrainingState()
    if resume:
        check_can_train(run)
        record.check_files(run)
        if (run / LAST).exists():
            stored, state = checkpoint.read_progress(run / LAST)
        elif processes.is_first:
            # a run that was killed before its first checkpoint, or whose checkpoint is gone: worse weights would
            # replace the best ones; the first kept ones stay
            if (run / BEST).exists() and not (run / EARLIER_BEST).exists():
                (run / BEST).rename(run / EARLIER_BEST)
            if record.initial is not None:
                initial_run.copy_vocabularies(record.initial, run)
        record = record.resumed(config, training, state.step, run)
    if not processes.is_first:
        processes.barrier()
    problem = config.prepare(run, new=not resume and processes.is_first)
    if processes.is_first:
        processes.barrier()
    return record.with_options(problem.resolved_options()), stored, state, problem


def version_warnings(run: Path, resume: bool, processes: Processes) -> Iterator[Warned]:
    """Warnings about other versions than those that the run began with."""
    if not resume or not processes.is_first:
        return
    record = RunRecord.read(run)
    if changes := record.changed_versions():
        before = ", ".join(f"{name} {version}" for name, version, _ in changes)
        now = ", ".join(f"{name} {version}" for name, _, version in changes)
        yield Warned(f"{run} was trained with {before}, and is resumed with {now}: its numbers may differ slightly")
    if (changed := record.changed_config(run)) is not None:
        name, recorded, now = changed
        yield Warned(
            f"{run / CONFIG} has {name} = {now!r}, and the run {recorded!r}: a resumed run reads {RECORD}, and writes "
            f"{CONFIG} anew; type options of training, or begin another run with --config"
        )


def warnings(
    run: Path,
    resume: bool,
    step: int,
    training: TrainingConfig,
    processes: Processes,
    problem: TrainingProblem[Any, Any],
) -> Iterator[Warned]:
    """Warnings about choices that may not be intended."""
    yield from map(Warned, (*problem.shared, *problem.warnings()))
    if resume and step == 0:
        kept = f", and the best weights of before are kept as {EARLIER_BEST}" if (run / EARLIER_BEST).exists() else ""
        yield Warned(f"{run} has no checkpoint yet; it starts over{kept}")
    if training.precision == "bfloat16" and processes.device.type == "cpu" and not has_bfloat16():
        yield Warned("this processor has no units for bfloat16: steps take up to 40 times as long; take float32")
    if training.parallel == "shard" and processes.world == 1:
        yield Warned("parallel='shard' with one process shares nothing; start several with torchrun")


def has_bfloat16() -> bool:
    """Whether this processor has units for bfloat16, on any architecture."""
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()
