"""scikit-learn's digits by the same ConvNet with every gate: `python -m benchmarks.vision.digits --runs FOLDER`.

The trainings are those of `regard compare classify-image --gate … --seeds 5`, one after the other in this process. The
seed also parts the images: a fifth of every class is held out to be judged on.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import RESULTS, Result, Row, Table
from regard.cli.comparison import student
from regard.cli.verbs.compare import seeded
from regard.gates.catalogue import GATES
from regard.tasks._image_data import read, recalled
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.task import evaluate
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST

SEEDS = 5
# chosen on validation images, without a gate; 21 batches are an epoch
TASK = ClassifyImage(width=16)
TRAINING = TrainingConfig(
    epochs=14,
    lr=6e-3,
    schedule="cosine",
    warmup=30,
    weight_decay=0.01,
    validate_every=98,
    save_every=294,
    log_every=98,
    threads=1,
)

SAID = """\
1,797 images of 8 × 8 pixels; a fifth of every class is held out to be judged on, anew for each of five seeds, and a
tenth of the rest chooses the best weights. Settings were chosen without a gate and without test images. One of 360 test
images is 0.28 %: where intervals overlap, the gates cannot be told apart by this.
"""


@dataclass(frozen=True)
class Judged:
    """A gate's networks on their test images."""

    gate: str
    accuracies: list[float]  # in percent, one a seed
    parameters: int
    rate: float  # images a second of the processor
    cpu: float  # seconds of all trainings

    @property
    def mean(self) -> float:
        return statistics.mean(self.accuracies)

    @property
    def half(self) -> float:
        """Of the 95 % interval of the mean."""
        n = len(self.accuracies)
        return student(n) * statistics.stdev(self.accuracies) / n**0.5


def judged(gate: str, tasks: Mapping[str, Any], out: Path, training: TrainingConfig, say: Say) -> Judged:
    """Trained, or found trained, with every seed, and judged on the test images."""
    accuracies, cpu = [], 0.0
    for name, task in tasks.items():
        started, _ = train(name, task, training, out / name, say)
        model = task.fresh(out / name)
        checkpoint.load(model, out / name / BEST)
        accuracies.append(evaluate(model.eval(), read(task)[1], recalled(out / name))["accuracy"])
        spent = Spent.of(out / name)
        cpu += 0.0 if spent is None else spent.seconds
        say(f"{name}: {accuracies[-1]:.2f} % of the test images")
    return Judged(gate, accuracies, started.parameters, rate(task, out / name), cpu)


def rate(task: ClassifyImage, run: Path, repeats: int = 10) -> float:
    """Images that are learned from in a second of the processor: the best of some steps, on one thread."""
    work = task.prepare(run, new=False)
    model, batch = work.model().train(), work.batch(work.batches(0)[0], 0, 1)
    assert batch is not None
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        work.loss(model, batch).total.backward()
        best = min(best, time.process_time() - begun)
    return len(batch.labels) / best


def result(found: Sequence[Judged], task: ClassifyImage, training: TrainingConfig) -> Result:
    plain = next(one for one in found if one.gate == "none")
    seeds, long = (
        len(plain.accuracies),
        f"{training.epochs or training.steps:g} {'epochs' if training.epochs else 'steps'}",
    )
    row = Row(
        "scikit-learn's digits, ConvNet without a gate",
        plain.mean,
        "% of test images",
        Bound("least", 98.5),
        f"{long}, {plain.parameters:,} parameters; mean of {seeds} seeds",
        plain.cpu,
        beside=f"95 % interval ± {plain.half:.2f}",
    )
    lines = [
        [
            one.gate,
            f"{one.mean:.2f} ± {one.half:.2f}",
            f"{min(one.accuracies):.2f} to {max(one.accuracies):.2f}",
            f"{one.parameters:,}",
            f"{one.rate:,.0f}",
        ]
        for one in sorted(found, key=lambda one: -one.mean)
    ]
    missing = [name for name in GATES if name not in {one.gate for one in found}]
    minutes = sum(one.cpu for one in found) / 60
    left = f"Not trained: {', '.join(missing)}. " if missing else ""
    table = Table(
        "Every gate at the same budget",
        ["gate", "test accuracy, %", "least to best seed", "parameters", "images/s"],
        lines,
        f"Means over {seeds} seeds with 95 % intervals (Student's t). Images a second of the processor are of training:"
        f" forward and backward, on one thread. All trainings took {minutes:.1f} CPU minutes. {left}`regard compare "
        "classify-image --gate … --seeds 5` makes such a table of validation scores, with memory.",
    )
    settings = {
        "task": asdict(task),
        "training": asdict(training),
        "accuracies": {one.gate: one.accuracies for one in found},
    }
    command = "python -m benchmarks.vision.digits --runs runs"
    return Result("digits", "Digits, gate by gate", SAID, [row], [table], commands=[command], settings=settings)


def main(
    arguments: Sequence[str] | None = None,
    *,
    task: ClassifyImage = TASK,
    training: TrainingConfig = TRAINING,
    seeds: int = SEEDS,
    results: Path = RESULTS,
) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.digits")
    made.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="where runs are kept")
    made.add_argument("--gates", nargs="*", choices=sorted(GATES), help="only these, in the result too")
    given = made.parse_args(arguments)
    names = ["none", *(GATES if given.gates is None else given.gates)]
    torch.set_num_threads(1)
    found = []
    try:
        for name, one in task.versions(names).items():
            tasks = {
                label: each for label, each in seeded({name: one}, seeds).items() if isinstance(each, ClassifyImage)
            }
            found.append(judged(name, tasks, given.runs / "digits", training, lambda text: print(text, flush=True)))
            # after every gate, so that what was measured is told whatever comes
            path = result(found, task, training).write(results)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
