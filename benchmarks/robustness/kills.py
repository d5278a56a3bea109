"""kill -9 of trainings of any tasks: no torn file, and the same bits as an uninterrupted training.

    python -m benchmarks.robustness.kills [--kills 50] [--seed 0] [--tasks translate classify-text]

The kills are shared by the tasks, whose options are those of tests/tasks/cases.py. A training is killed at random
moments and resumed until it ends, as in `benchmarks.translation.resume`, which has the details.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.tasks.cases import CASES, with_paths, write_files

from benchmarks import measured
from benchmarks.measured import About
from benchmarks.translation import resume
from regard.cli.verbs.train import TrainOptions, parse_task
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS
from regard.training.config import TrainingConfig

NAME = "kills"
# so many steps that a process lives long enough to be killed, and a checkpoint every few of them
TRAINING = replace(resume.TRAINING, steps=400, validate_every=80, save_every=5)


@dataclass(frozen=True)
class Result:
    """The outcome of all kills, by task."""

    about: About
    tasks: Mapping[str, resume.Result]

    @property
    def verdict(self) -> str:
        return "reached" if all(result.verdict == "reached" for result in self.tasks.values()) else "falls short"


def task_of(name: str, folder: Path) -> TaskConfig:
    """The task with its tiny options, on the files in the folder."""
    words = with_paths(CASES[name].options, folder)
    options = parse_task(TrainOptions, f"regard train {name}", TASKS[name], words)
    return TASKS[name](**options.task).with_absolute_paths()


def measure(
    folder: Path,
    tasks: Sequence[str],
    kills: int,
    seed: int = 0,
    training: TrainingConfig = TRAINING,
    say: Callable[[str], None] = print,
) -> Result:
    """Kills the trainings of each task in turn, this many times in all; the folder must be empty."""
    write_files(folder)
    results = {}
    for number, name in enumerate(tasks):
        count = kills * (number + 1) // len(tasks) - kills * number // len(tasks)
        say(f"{name}: {count} kills")
        # so short that one training takes most of the kills: on average it gains half of the share per kill
        share = min(2 / max(count, 1), resume.SHARE)
        task = task_of(name, folder)
        results[name] = resume.measure(folder / name, count, seed, training, say=say, task=task, share=share)
    return Result(About.now(), results)


def table(result: Result) -> str:
    rows = [
        [
            name,
            *map(str, (each.kills, each.trainings, each.before_first, each.while_writing, each.read, len(each.broken))),
            "the same bits" if not each.different else "; ".join(each.different),
        ]
        for name, each in result.tasks.items()
    ]
    headings = ["task", "kills", "trainings", "before a checkpoint", "while writing", "checkpoints read", "torn"]
    return measured.table([*headings, "weights and metrics"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.robustness.kills", description="Kill trainings.")
    parsing.add_argument("--kills", type=int, default=50, help="number of kills, over all tasks (%(default)s)")
    parsing.add_argument("--seed", type=int, default=0, help="determines the moments (%(default)s)")
    tasks = ["translate", "classify-text"]
    parsing.add_argument("--tasks", nargs="+", choices=list(CASES), default=tasks, help="(translate and classify-text)")
    parsing.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the result (%(default)s)")
    given = parsing.parse_args(arguments)
    if given.kills < len(given.tasks):
        parsing.error(f"--kills must be one or more per task, got {given.kills} for {len(given.tasks)}")
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), given.tasks, given.kills, given.seed)
    print(table(result), end="")
    print(f"written: {measured.write(given.runs / NAME / 'result.json', result)}")
    return 0 if result.verdict == "reached" else 1


if __name__ == "__main__":
    sys.exit(main())
