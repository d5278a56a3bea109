"""kill -9 of trainings of any tasks: no torn file, and the same bits as an uninterrupted training.

    python -m benchmarks.robustness.kills [--kills 50] [--seed 0] [--tasks translate classify-text]

The kills are shared by the tasks, whose options are those of tests/tasks/cases.py. A training is killed at random
moments and resumed until it ends, as in `resume.py`, which has the details.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.tasks.cases import CASES, with_paths, write_files

from benchmarks.result import RESULTS, Result, Row, Table
from benchmarks.robustness import resume
from benchmarks.table import Bound
from regard.cli.verbs.train import TrainOptions, parse_task
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS
from regard.training.config import TrainingConfig

# so many steps that a process lives long enough to be killed, and a checkpoint every few of them
TRAINING = replace(resume.TRAINING, steps=400, validate_every=80, save_every=5)
SAID = """\
A small training is killed (-9) at random moments and resumed until it ends, repeatedly. All its checkpoints are read
after every kill; at the end weights, moments and metrics are compared with those of an uninterrupted training.
"""


def config_of(name: str, folder: Path) -> TaskConfig:
    """The tiny options of a task, on the files in the folder."""
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
) -> dict[str, resume.Result]:
    """Kills the trainings of each task in turn, this many times in all; the folder must be empty."""
    write_files(folder)
    results = {}
    for number, name in enumerate(tasks):
        count = kills * (number + 1) // len(tasks) - kills * number // len(tasks)
        say(f"{name}: {count} kills")
        # so short that one training takes most of the kills: on average it gains half of the share per kill
        share = min(2 / max(count, 1), resume.SHARE)
        results[name] = resume.measure(folder / name, config_of(name, folder), count, seed, training, say, share)
    return results


def result(tasks: Mapping[str, resume.Result]) -> Result:
    lines = [
        [
            name,
            *map(str, (each.kills, each.trainings, each.before_first, each.while_writing, each.read, len(each.broken))),
            "the same bits" if not each.different else "; ".join(each.different),
        ]
        for name, each in tasks.items()
    ]
    headings = ["task", "kills", "trainings", "before a checkpoint", "while writing", "checkpoints read", "torn"]
    faults = sum(len(each.broken) + len(each.different) for each in tasks.values())
    rows = [Row("torn files, and trainings with other bits", faults, "", Bound("most", 0), digits=0)]
    kills = sum(each.kills for each in tasks.values())
    command = f"python -m benchmarks.robustness.kills --kills {kills} --tasks {' '.join(tasks)}"
    table = Table("Kills by task", [*headings, "weights and metrics"], lines)
    return Result("kills", "Kill and resume", SAID, rows, [table], commands=[command])


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS / "translation") -> int:
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.robustness.kills", description="Kill trainings.")
    parsing.add_argument("--kills", type=int, default=50, help="number of kills, over all tasks (%(default)s)")
    parsing.add_argument("--seed", type=int, default=0, help="determines the moments (%(default)s)")
    tasks = ["translate", "classify-text"]
    parsing.add_argument("--tasks", nargs="+", choices=list(CASES), default=tasks, help="(translate and classify-text)")
    parsing.add_argument("--save", action="store_true", help="write benchmarks/results/translation/kills.json")
    given = parsing.parse_args(arguments)
    if given.kills < len(given.tasks):
        parsing.error(f"--kills must be one or more per task, got {given.kills} for {len(given.tasks)}")
    with tempfile.TemporaryDirectory() as folder:
        found = result(measure(Path(folder), given.tasks, given.kills, given.seed))
    print("\n".join(" | ".join(line) for line in (found.tables[0].headings, *found.tables[0].rows)))
    if given.save:
        print(f"written: {found.write(results)}")
    return 0 if found.rows[0].verdict == "reached" else 1


if __name__ == "__main__":
    sys.exit(main())
