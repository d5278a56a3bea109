"""kill -9 at any moment: no broken checkpoint, and the weights of the run that nobody disturbed, bit for bit.

    python -m benchmarks.translation.resume [--kills 100] [--runs FOLDER] [--seed 0]

A small training runs in a process of its own and is killed at a random moment: while it reads, steps, validates or
writes. After every kill all its checkpoints are read. It is resumed until it ends; then another one begins, until there
were enough kills. Each that ended is compared with one that was left alone.
"""

import argparse
import json
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import measured
from benchmarks.measured import About
from regard.data.embedded import reverse
from regard.data.text.pairs import Pairs
from regard.tasks.translate.options import Translate
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import AVERAGE, BEST, LAST, METRICS, RECORD, RunRecord
from regard.training.state import TrainingState

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.synchronize import Event

NAME = "resume"
TRAINING = TrainingConfig(
    steps=300,
    lr=3e-3,
    warmup=20,
    validate_every=40,
    save_every=7,
    log_every=10,
    average=3,
    threads=1,
    device="cpu",
)
# A training is killed within this share of the time that its steps take undisturbed, counted from its first step, or
# for this share of the kills from the start of its process, when it still reads its data.
SHARE, EARLY = 0.2, 0.15
# what a training imports, early or late; torch's optimizers bring along its compiler
_PRELOADED = [
    "regard.training.fit",
    "regard.tasks.translate.task",
    "sacrebleu.metrics",
    "safetensors.torch",
    "torch._dynamo",
]
# what a line of metrics.jsonl may differ in: time
_TIMES = ("tokens_per_second", "elapsed", "seconds")


@dataclass(frozen=True)
class Result:
    """What so many kills did."""

    about: About
    kills: int
    trainings: int  # that were killed and resumed until they ended
    before_first: int  # kills before there was any checkpoint
    while_writing: int  # kills that left a file half written, under its temporary name
    read: int  # checkpoints that were read after kills
    broken: list[str]  # what could not be read, and why
    different: list[str]  # what was not bit for bit as in the undisturbed run
    seconds: float

    @property
    def verdict(self) -> str:
        return "falls short" if self.broken or self.different else "reached"


def small(folder: Path, pairs: int = 400) -> Translate:
    """A training of seconds: letters to reverse, in files, so that reading them takes no time."""
    drawn = reverse.splits(0, train=pairs, valid=20, test=1, longest=8)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [_tsv(folder / f"{name}.tsv", part) for name, part in (("train", drawn.train), ("valid", drawn.valid))]
    return Translate(
        train=(paths[0],),
        valid=(paths[1],),
        tokens="characters",
        width=16,
        hidden=32,
        dropout=0.1,
        batch=256,
        metric="exact",
    )


def _tsv(path: Path, pairs: Pairs) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(pairs.source, pairs.target, strict=True)), encoding="utf-8")
    return path


def train(task: Translate, run: Path, training: TrainingConfig, ready: "Event") -> None:
    """All of a training, or what is left of it."""
    from regard.training.fit import fit

    for _ in fit(task, run, training, resume=(run / RECORD).exists()):
        ready.set()


class Trainer:
    """Starts trainings in processes that need not import anything: a server that did is forked."""

    def __init__(self, task: Translate, training: TrainingConfig) -> None:
        self.task, self.training = task, training
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(_PRELOADED)

    def run(self, run: Path) -> float:
        """Trains in the folder to the end; the seconds that its steps took."""
        process, ready = self._start(run)
        _wait(process, ready)
        start = time.perf_counter()
        process.join()
        self._check(process, run)
        return time.perf_counter() - start

    def kill(self, run: Path, seconds: float, early: bool) -> bool:
        """Trains for so many seconds from the first step, or from the start; False if it came to its end before."""
        process, ready = self._start(run)
        if not early:
            _wait(process, ready)
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        # it may have come to its end while it was being killed
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
    """The count of what kills did."""

    def __init__(self) -> None:
        self.count = self.before_first = self.while_writing = self.read = 0
        self.broken: list[str] = []
        self.different: list[str] = []

    def look(self, run: Path, step: int) -> int:
        """Reads all that a killed training left behind; the step it would go on from."""
        self.count += 1
        self.while_writing += bool([*run.rglob(".*.unfinished")])
        for path in sorted(run.rglob("*.safetensors")):
            self._try(path, lambda path=path: checkpoint.read(path))  # type: ignore[misc]
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


def different(run: Path, alone: Path) -> list[str]:
    """What of a run is not as in another: files, tensors bit for bit, metrics but for the time."""
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
    kills: int,
    seed: int = 0,
    training: TrainingConfig = TRAINING,
    pairs: int = 400,
    say: Callable[[str], None] = print,
) -> Result:
    """So many kills, in trainings one after the other, in a folder that holds nothing yet."""
    begun = time.perf_counter()
    draw = random.Random(seed)
    trainer = Trainer(small(folder, pairs), training)
    alone = folder / "alone"
    whole = trainer.run(alone)
    say(f"{training.steps} steps undisturbed take {whole:.1f} s; killing within {SHARE * whole:.1f} s")
    counted, trainings = Kills(), 0
    while counted.count < kills:
        trainings += 1
        run, step = folder / str(trainings), 0
        ended = False
        while not ended and counted.count < kills:
            ended = not trainer.kill(run, draw.uniform(0, SHARE * whole), early=draw.random() < EARLY)
            if not ended:
                step = counted.look(run, step)
        if not ended:
            trainer.run(run)
        unlike = [f"training {trainings}: {what}" for what in different(run, alone)]
        counted.different += unlike
        said = "; ".join(unlike) if unlike else "the same bits"
        say(f"training {trainings} ended after {counted.count} kills in all: {said}, {len(counted.broken)} broken")
    return Result(
        about=About.now(),
        kills=counted.count,
        trainings=trainings,
        before_first=counted.before_first,
        while_writing=counted.while_writing,
        read=counted.read,
        broken=counted.broken,
        different=counted.different,
        seconds=time.perf_counter() - begun,
    )


def table(found: Result) -> str:
    bits = "the same bits in all of them" if not found.different else "; ".join(found.different)
    return measured.table(
        ["kills", "trainings", "before a checkpoint", "while writing", "checkpoints read", "broken", "weights"],
        [
            [
                str(found.kills),
                str(found.trainings),
                str(found.before_first),
                str(found.while_writing),
                f"{found.read:,}",
                str(len(found.broken)),
                bits,
            ]
        ],
    )


def read(runs: Path) -> Result | None:
    told = measured.read(runs / NAME / "result.json")
    return None if told is None else Result(**told)


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(
        prog="python -m benchmarks.translation.resume", description="Kill a training again and again, and resume it."
    )
    parsing.add_argument("--kills", type=int, default=100, help="how many (%(default)s)")
    parsing.add_argument("--seed", type=int, default=0, help="decides when (%(default)s)")
    parsing.add_argument("--steps", type=int, default=TRAINING.steps, help="of a training (%(default)s)")
    parsing.add_argument("--runs", type=Path, default=Path("runs"), help="where the result is kept (%(default)s)")
    given = parsing.parse_args(arguments)
    for name in ("kills", "steps"):
        if getattr(given, name) < 1:
            parsing.error(f"--{name} must be 1 or more, got {getattr(given, name)}")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.kills, given.seed, replace(TRAINING, steps=given.steps))
    print(table(found), end="")
    for broken in found.broken:
        print(broken)
    print(f"written: {measured.write(given.runs / NAME / 'result.json', found)}")
    return 0 if found.verdict == "reached" else 1


if __name__ == "__main__":
    sys.exit(main())
