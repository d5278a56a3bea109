"""MNIST by a perceptron with and without the attention module: `python -m benchmarks.vision.mlp --mnist FOLDER`.

The trainings are those of `regard compare classify-image --model mlp --gate … --seeds 3`, one after the other in this
process, each with the same number of epochs.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.vision.digits import Judged, judge_all
from benchmarks.vision.result import RESULTS, Result, Row, Table
from regard.experiments.comparison import with_seeds
from regard.tasks.classify_image.options import ClassifyImage
from regard.training.config import TrainingConfig

SEEDS = 3
GATES = {
    "none": "the perceptron alone",
    "attention-module": "with the attention module on its rows",
    "gated-units": "with gated heads over hidden units on its rows",
}
TASK = ClassifyImage.of(model="mlp", batch=128)
# a tenth of 60,000 images is held out to select the best weights: an epoch has 422 batches
TRAINING = TrainingConfig(
    epochs=1, lr=2e-3, schedule="cosine", warmup=50, validate_every=211, save_every=211, log_every=211, threads=1
)

SAID = """\
A perceptron of 784-128-64-10 units, alone and with a gate that weights the rows of the image before its first layer and
is trained with it. All have the same budget, learning rate and shifts of one pixel; no setting was tuned for any of
them, and the training is short. The seed determines the initial weights and which tenth of the training images selects
the best weights; the test images are always the same 10,000.
"""


def result(found: Sequence[Judged], task: ClassifyImage, training: TrainingConfig) -> Result:
    """The table, with one row per variant, and the difference of the module from the perceptron alone."""
    by_gate = {one.gate: one for one in found}
    long = f"epochs: {training.epochs:g}" if training.epochs else f"steps: {training.steps}"
    rows = [
        Row(
            f"MNIST, {GATES[one.gate]}",
            one.mean,
            "% of 10,000 test images",
            how=f"{long}; {one.parameters:,} parameters; mean of {len(one.accuracies)} seeds",
            cpu=one.cpu / len(one.accuracies),
            beside=f"95 % interval ± {one.half:.2f}",
        )
        for one in found
    ]
    if {"none", "attention-module"} <= by_gate.keys():
        gain = by_gate["attention-module"].mean - by_gate["none"].mean
        rows.append(Row("MNIST, the module's gain over the perceptron alone", gain, "points of accuracy"))
    lines = [
        [
            one.gate,
            ", ".join(f"{accuracy:.2f}" for accuracy in one.accuracies),
            f"{one.mean:.2f} ± {one.half:.2f}",
            f"{one.parameters:,}",
            f"{one.rate:,.0f}",
        ]
        for one in found
    ]
    table = Table(
        "With and without the module, seed by seed",
        ["gate", "test accuracy of each seed, %", "mean, %", "parameters", "images/s"],
        lines,
        "Intervals are 95 % by Student's t. Images/s are training images per CPU second, forward and backward.",
    )
    named = {**task.to_json(), "train": None if task.train is None else task.train.name}
    accuracies = {one.gate: one.accuracies for one in found}
    settings = {"task": named, "training": asdict(training), "accuracies": accuracies}
    command = "python -m benchmarks.vision.mlp --mnist FOLDER"
    return Result("mlp", "MNIST by a perceptron", SAID, rows, [table], commands=[command], settings=settings)


def main(
    arguments: Sequence[str] | None = None,
    *,
    task: ClassifyImage = TASK,
    training: TrainingConfig = TRAINING,
    seeds: int = SEEDS,
    results: Path = RESULTS,
) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.mlp", description=__doc__)
    made.add_argument("--mnist", type=Path, metavar="FOLDER", required=True, help="the four IDX files, plain or .gz")
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = made.parse_args(arguments)
    placed = task.with_options(data=None, train=given.mnist)
    tasks = {name: with_seeds({name: variant}, seeds) for name, variant in placed.variants(list(GATES)).items()}
    return judge_all(tasks, given.runs / "mlp", training, lambda found: result(found, placed, training).write(results))


if __name__ == "__main__":
    sys.exit(main())
