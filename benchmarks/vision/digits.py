"""scikit-learn's digits, by the same ConvNet with each gate: `python -m benchmarks.vision.digits --runs FOLDER`.

The trainings are those of `regard compare classify-image --gate … --seeds 5`, one after the other in this process. The
seed also splits the images: a fifth of every class is held out as test images.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import RESULTS, Result, Row, Table
from regard.experiments.comparison import student, with_seeds
from regard.gates.catalogue import GATES
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.classify_image.task import image_scores
from regard.tasks.loading import load
from regard.tasks.shared.image_data import read_train_and_test
from regard.training.config import TrainingConfig

SEEDS = 5
# chosen on validation images, without a gate; 21 batches are an epoch
TASK = ClassifyImage.of(width=16)
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
1,797 images of 8 × 8 pixels. Each of five seeds holds out a different fifth of every class as test images; a tenth of
the rest selects the best weights. Settings were chosen without a gate and without test images. One of 360 test images
is 0.28 %: gates whose intervals overlap do not differ significantly.
"""


@dataclass(frozen=True)
class Judged:
    """The accuracies of the networks with one gate on their test images."""

    gate: str
    accuracies: list[float]  # in percent, one per seed
    parameters: int
    rate: float  # images per CPU second
    cpu: float  # CPU seconds of all trainings

    @property
    def mean(self) -> float:
        return statistics.mean(self.accuracies)

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval of the mean."""
        n = len(self.accuracies)
        return student(n) * statistics.stdev(self.accuracies) / n**0.5


def judged(gate: str, tasks: Mapping[str, Any], out: Path, training: TrainingConfig, say: Say) -> Judged:
    """Trains with every seed, unless already trained, and evaluates on the test images."""
    accuracies, cpu = [], 0.0
    for name, task in tasks.items():
        started, _ = train(name, task, training, out / name, say)
        predictor = load(out / name, device="cpu")
        assert isinstance(predictor, ImageClassifier)
        test = read_train_and_test(task)[1]
        accuracies.append(image_scores(predictor.model, test, predictor.stats)["accuracy"])
        spent = Spent.of(out / name)
        cpu += 0.0 if spent is None else spent.seconds
        say(f"{name}: {accuracies[-1]:.2f} % of the test images")
    return Judged(gate, accuracies, started.parameters, rate(task, out / name), cpu)


def rate(task: ClassifyImage, run: Path, repeats: int = 10) -> float:
    """Training images per CPU second: the best of `repeats` steps, on one thread."""
    problem = task.prepare(run, new=False)
    model, batch = problem.build_model().train(), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    assert batch is not None
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        problem.loss(model, batch).total.backward()
        best = min(best, time.process_time() - begun)
    return len(batch.labels) / best


def judge_all(
    tasks: Mapping[str, Mapping[str, Any]],
    out: Path,
    training: TrainingConfig,
    write: Callable[[Sequence[Judged]], Path],
) -> int:
    """Judges gate after gate, on one thread, and writes the results after each; returns the exit code."""
    torch.set_num_threads(1)
    found = []
    try:
        for gate, seeds in tasks.items():
            found.append(judged(gate, seeds, out, training, lambda text: print(text, flush=True)))
            # after every gate, so that an interruption loses no result
            path = write(found)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"written: {path}")
    return 0


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
        f"Means over {seeds} seeds with 95 % intervals (Student's t). Images/s are training images per CPU second:"
        f" forward and backward, on one thread. All trainings took {minutes:.1f} CPU minutes. {left}`regard compare "
        "classify-image --gate … --seeds 5` writes a similar table of validation scores, with memory.",
    )
    settings = {
        "task": task.to_json(),
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
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    made.add_argument(
        "--gates", nargs="*", choices=sorted(GATES), help="only these gates; the result then has only these"
    )
    given = made.parse_args(arguments)
    names = ["none", *(GATES if given.gates is None else given.gates)]
    tasks = {name: with_seeds({name: variant}, seeds) for name, variant in task.variants(names).items()}
    return judge_all(tasks, given.runs / "digits", training, lambda found: result(found, task, training).write(results))


if __name__ == "__main__":
    sys.exit(main())
