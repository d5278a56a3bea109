"""Channel attention, part by part, on digits or MNIST: `python -m benchmarks.vision.channels [--mnist FOLDER]`.

The trainings are those of `regard compare classify-image --gate none,gap,se:reduction=4,… --seeds 5`, one after the
other in this process.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.vision.digits import TASK, TRAINING, Judged, judge_all
from benchmarks.vision.result import RESULTS, Result, Row, Table
from regard.experiments.comparison import with_seeds
from regard.tasks.classify_image.options import ClassifyImage
from regard.training.config import TrainingConfig

SEEDS = 5
# 54,000 images of 28 × 28 pixels: one epoch, and maps of half the height and width
MNIST_TASK = TASK.with_options(stem_stride=2, batch=128)
MNIST_TRAINING = replace(TRAINING, epochs=1, validate_every=211, save_every=211, log_every=211)
# what each variant leaves out of, or changes in, squeeze and excite
VARIANTS = {
    "none": "no gate",
    "gap": "no layers: sigmoid of the mean",
    "se:reduction=2": "the widest hidden layer",
    "se:reduction=4": "",
    "se:reduction=8": "",
    "se:reduction=16": "the paper's",
    "se:reduction=32": "the narrowest hidden layer",
    "se:reduction=4:activation=none": "no relu between the layers",
    "se:reduction=4:normalize=softmax": "softmax over channels, no sigmoid",
}

SAID = """\
The same ConvNet with squeeze and excite, with its parts taken out one by one, and with other reductions. The stages
have 16, 32 and 64 channels, so that the hidden layer of reduction 16 has 1, 2 and 4 units. Without relu and with
softmax the reduction is 4, because a hidden layer of one unit would hide the difference. Settings were chosen
without a gate.
"""
# how MNIST is trained, behind the paragraph above
SAID_OF_MNIST = """\
MNIST has one epoch of 54,000 images with shifts of one pixel, on maps of half the height and width: a short training,
so that 45 of them take a quarter of an hour. The seed determines the initial weights and the tenth of the training
images that selects the best ones; the test images are always the same 10,000.
"""


def result(found: Sequence[Judged], task: ClassifyImage, training: TrainingConfig) -> Result:
    """The table, with one row per variant, and the best and the worst difference from the network without a gate."""
    plain = found[0]
    lines = [
        [
            f"`{one.gate}`",
            VARIANTS[one.gate],
            f"{one.mean:.2f} ± {one.half:.2f}",
            f"{min(one.accuracies):.2f} to {max(one.accuracies):.2f}",
            f"{one.parameters - plain.parameters:,}",
            f"{one.rate:,.0f}",
            f"{one.cpu / len(one.accuracies):.0f}",
        ]
        for one in found
    ]
    data = "digits" if task.train is None else "MNIST"
    others = sorted(found[1:], key=lambda one: one.mean)
    rows = [
        Row(
            f"{data}, {one.gate}",
            one.mean - plain.mean,
            "points of test accuracy against no gate",
            how=f"{one.parameters:,} parameters; {len(one.accuracies)} seeds",
            cpu=one.cpu,
        )
        for one in (others[-1:] + others[:1] if len(others) > 1 else others)
    ]
    table = Table(
        f"Parts and reductions, on {data}",
        [
            "gate",
            "what it is",
            "test accuracy, %",
            "least to best seed",
            "parameters of the gates",
            "images/s",
            "CPU s",
        ],
        lines,
        f"Means over {len(plain.accuracies)} seeds with 95 % intervals (Student's t): variants whose intervals overlap "
        "do not differ significantly. Images/s are training images per CPU second, forward and backward, on one "
        "thread; CPU s is the time of one training.",
    )
    named = {**task.to_json(), "train": None if task.train is None else task.train.name}
    accuracies = {one.gate: one.accuracies for one in found}
    settings = {"task": named, "training": asdict(training), "accuracies": accuracies}
    name = "channels" if task.train is None else "channels_mnist"
    command = "python -m benchmarks.vision.channels" + ("" if task.train is None else " --mnist FOLDER")
    title = f"Channel attention, part by part: {data}"
    said = SAID if task.train is None else SAID + SAID_OF_MNIST
    return Result(name, title, said, rows, [table], commands=[command], settings=settings)


def main(
    arguments: Sequence[str] | None = None,
    *,
    task: ClassifyImage | None = None,
    training: TrainingConfig | None = None,
    seeds: int = SEEDS,
    results: Path = RESULTS,
) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.channels", description=__doc__)
    made.add_argument("--mnist", type=Path, metavar="FOLDER", help="the four IDX files; if left out, digits")
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = made.parse_args(arguments)
    if given.mnist is None:
        task, training = task or TASK, training or TRAINING
    else:
        task, training = task or MNIST_TASK, training or MNIST_TRAINING
        task = task.with_options(data=None, train=given.mnist)
    tasks = {name: with_seeds({name: variant}, seeds) for name, variant in task.variants(list(VARIANTS)).items()}
    out = given.runs / ("channels" if given.mnist is None else "channels_mnist")
    return judge_all(tasks, out, training, lambda found: result(found, task, training).write(results))


if __name__ == "__main__":
    sys.exit(main())
