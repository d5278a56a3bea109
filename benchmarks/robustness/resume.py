"""kill -9 at random moments: no broken checkpoint, and the same weights as an uninterrupted run, bit for bit.

A small training runs in a separate process and is killed at a random moment: while it reads, steps, validates or
writes. After every kill all its checkpoints are read. It is resumed until it ends; then the next training begins, until
the number of kills is reached. Each finished training is compared with an uninterrupted one.
"""

import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.common import safetensors_files
from regard.tasks.base import TaskConfig
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import AVERAGE, BEST, LAST, METRICS, RECORD, VALIDATED, RunRecord
from regard.training.state import TrainingState

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.synchronize import Event

TRAINING = TrainingConfig(
    steps=300, lr=3e-3, warmup=20, validate_every=40, save_every=7, log_every=10, average=3, threads=1, device="cpu"
)
# A training is killed within SHARE of the time of an uninterrupted one, counted from its first step or, for the share
# EARLY of the kills, from the start of its process, while it still reads its data.
SHARE, EARLY = 0.2, 0.15
# the imports of a training, early or late; torch's optimizers import its compiler
_PRELOADED = ["regard.training.fit", "sacrebleu.metrics", "safetensors.torch", "torch._dynamo"]
# the fields of metrics.jsonl that may differ: times
_TIMES = ("tokens_per_second", "elapsed", "seconds")


@dataclass(frozen=True)
class Result:
    """The outcome of all kills."""

    kills: int
    trainings: int  # trainings that were killed and resumed until they ended
    before_first: int  # kills before there was any checkpoint
    while_writing: int  # kills that left a file half written, under its temporary name
    read: int  # checkpoints that were read after kills
    broken: list[str]  # files that could not be read, and the errors
    different: list[str]  # differences from the uninterrupted run
    seconds: float

    @property
    def verdict(self) -> str:
        return "falls short" if self.broken or self.different else "reached"


def train(task: TaskConfig, run: Path, training: TrainingConfig, ready: "Event") -> None:
    """Runs a training, or the rest of it."""
    from regard.training.fit import fit

    for _ in fit(task, run, training, resume=(run / RECORD).exists()):
        ready.set()


class Trainer:
    """Starts trainings in processes forked from a server that has imported everything."""

    def __init__(self, task: TaskConfig, training: TrainingConfig) -> None:
        self.task, self.training = task, training
        self.context = multiprocessing.get_context("forkserver")
        own = f"regard.tasks.{task.name.replace('-', '_')}.task"
        self.context.set_forkserver_preload([*_PRELOADED, own])

    def run(self, run: Path) -> float:
        """Trains in the folder to the end; returns the seconds of its steps."""
        process, ready = self._start(run)
        _wait(process, ready)
        start = time.perf_counter()
        process.join()
        self._check(process, run)
        return time.perf_counter() - start

    def kill(self, run: Path, seconds: float, early: bool) -> bool:
        """Trains for this many seconds from the first step, or from the start; False if it ended before."""
        process, ready = self._start(run)
        if not early:
            _wait(process, ready)
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        # it may have ended before the kill
        if process.exitcode == -signal.SIGKILL:
            return True
        self._check(process, run)
        return False

    def _start(self, run: Path) -> "tuple[BaseProcess, Event]":
        ready = self.context.Event()
        process = self.context.Process(target=train, args=(self.task, run, self.training, ready))
        process.start()
        return process, ready

    def _check(self, process: "BaseProcess", run: Path) -> None:
        if process.exitcode != 0:
            raise RuntimeError(f"the training in {run} failed with code {process.exitcode}; its error is above")


def _wait(process: "BaseProcess", ready: "Event") -> None:
    while not ready.wait(0.02) and process.is_alive():
        pass


class Kills:
    """Counts the outcomes of kills."""

    def __init__(self) -> None:
        self.count = self.before_first = self.while_writing = self.read = 0
        self.broken: list[str] = []
        self.different: list[str] = []

    def look(self, run: Path, step: int) -> int:
        """Reads all files of a killed training; returns the step from which it would resume."""
        self.count += 1
        self.while_writing += bool([*run.rglob(".*.unfinished")])
        for path in sorted(run.rglob("*.safetensors")):
            self._try(path, lambda path=path: _read(path))  # type: ignore[misc]
        if (run / RECORD).exists():
            self._try(run / RECORD, lambda: RunRecord.read(run))
        if not (run / LAST).exists():
            self.before_first += 1
            if step:
                self.broken.append(f"kill {self.count}: {LAST} is gone")
            return 0
        progress = self._try(run / LAST, lambda: TrainingState.from_dict(checkpoint.read(run / LAST).facts["progress"]))
        if progress is None:
            return step
        if progress.step < step:
            self.broken.append(f"kill {self.count}: {LAST} went back from step {step} to {progress.step}")
        return int(progress.step)

    def _try(self, path: Path, reading: Callable[[], Any]) -> Any:
        try:
            found = reading()
        except (ValueError, KeyError, TypeError, OSError) as error:
            self.broken.append(f"kill {self.count}: {path.name}: {error}")
            return None
        self.read += path.suffix == ".safetensors"
        return found


def _read(path: Path) -> None:
    """Reads a checkpoint, or another safetensors file that the task keeps in its run, such as a baseline."""
    if path.name in (LAST, BEST, AVERAGE) or path.parent.name == VALIDATED:
        checkpoint.read(path)
    elif safetensors_files.has_tag(path, "regard"):
        safetensors_files.read_tagged(path, "regard", checkpoint.FORMAT, "file", untagged=1)
    else:
        safetensors_files.read_tensors(path, "file")  # such as the examples of a validation


def different(run: Path, alone: Path) -> list[str]:
    """The differences of two runs: files, tensors bit for bit, metrics without times."""
    found = []
    names = [{str(path.relative_to(one)) for path in one.rglob("*") if path.is_file()} for one in (run, alone)]
    if names[0] != names[1]:
        found.append(f"files: {sorted(names[0] ^ names[1])}")
    for name in (LAST, BEST, AVERAGE):
        if not (alone / name).exists():
            continue
        ours, theirs = checkpoint.read(run / name).tensors, checkpoint.read(alone / name).tensors
        if ours.keys() != theirs.keys():
            found.append(f"{name}: other tensors")
        unlike = [key for key in ours.keys() & theirs.keys() if not torch.equal(ours[key], theirs[key])]
        found += [f"{name}: {len(unlike)} of {len(ours)} tensors"] if unlike else []
    if _numbers(run) != _numbers(alone):
        found.append(METRICS)
    return found


def _numbers(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in _TIMES} for line in lines]


def measure(
    folder: Path,
    task: TaskConfig,
    kills: int,
    seed: int = 0,
    training: TrainingConfig = TRAINING,
    say: Callable[[str], None] = print,
    share: float = SHARE,
) -> Result:
    """Kills trainings of a task, one after the other, this many times; the folder must hold no runs."""
    begun = time.perf_counter()
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(task, training)
    alone = folder / "alone"
    whole = trainer.run(alone)
    say(f"{training.steps} uninterrupted steps take {whole:.1f} s; killing within {share * whole:.1f} s")
    counted, trainings = Kills(), 0
    while counted.count < kills:
        trainings += 1
        run, step = folder / str(trainings), 0
        ended = False
        while not ended and counted.count < kills:
            ended = not trainer.kill(run, draw.uniform(0, share * whole), early=draw.random() < EARLY)
            if not ended:
                step = counted.look(run, step)
        if not ended:
            trainer.run(run)
        unlike = [f"training {trainings}: {what}" for what in different(run, alone)]
        counted.different += unlike
        said = "; ".join(unlike) if unlike else "the same bits"
        say(f"training {trainings} ended after {counted.count} kills in all: {said}, {len(counted.broken)} broken")
    return Result(
        kills=counted.count,
        trainings=trainings,
        before_first=counted.before_first,
        while_writing=counted.while_writing,
        read=counted.read,
        broken=counted.broken,
        different=counted.different,
        seconds=time.perf_counter() - begun,
    )
