"""MNIST trained against PGD at eps 0.3: `python -m benchmarks.vision.mnist_attacks --mnist FOLDER`."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import regard
from benchmarks.measured import VISION, About
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished
from benchmarks.vision.attacks import Pixels, trained
from benchmarks.vision.result import RESULTS, Result, Row
from regard.attacks import Attack, Worst
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.shared.image_data import bounded_examples, read_split
from regard.training.config import TrainingConfig

EPS = 0.3
TASK = ClassifyImage.of(
    width=16, depths=(1, 1), stem_stride=2, dropout=0.0, adversary="pgd", eps=EPS, attack_steps=5, batch=128, shift=0
)
# a tenth of 60,000 images is held out: an epoch has 422 batches
TRAINING = TrainingConfig(
    epochs=5, lr=4e-3, schedule="cosine", warmup=200, validate_every=422, save_every=211, log_every=100, threads=1
)
ATTACKED = 1000

SAID = """\
A ConvNet of two stages and 16 channels whose first convolution takes every second pixel, trained on images that PGD of
5 steps attacked in the ball of 0.3, with the weights of the best likelihood under PGD on the held-out tenth. The worst
attack of regard is APGD by cross-entropy, by DLR and by targeted DLR to nine classes, 100 steps each, then Square.
AutoAttack's table has 88.50 % for Madry et al. (2018) and 82.93 % for Wong et al. (2020) on all 10,000 test images.
"""


def judged(task: ClassifyImage, training: TrainingConfig, run: Path, worst: Attack, images: int, say: Say) -> list[Row]:
    predictor, cpu = trained(task, training, run, say)
    x, y = bounded_examples(read_split(task, "test", predictor.stats.classes), predictor.stats.classes)
    net = Pixels(predictor.model, predictor.stats)
    with torch.no_grad():
        right = torch.cat(
            [net(part).argmax(1) == labels for part, labels in zip(x.split(1000), y.split(1000), strict=True)]
        )
    clean = 100 * right.double().mean().item()
    say(f"clean {clean:.2f} % of {len(x)}")
    begun = time.process_time()
    result = regard.attack(net, x[:images], y[:images], worst)
    seconds = time.process_time() - begun
    say(f"worst {result.accuracy:.2f} % of {len(x[:images])} in {seconds:.0f} CPU seconds")
    how = f"{training.epochs or training.steps:g} {'epochs' if training.epochs else 'steps'} of PGD-5, one seed"
    return [
        Row(
            "MNIST trained against PGD, under the worst attack of eps 0.3", result.accuracy,
            f"% of the first {len(x[:images]):,} test images", Bound("least", 80),
            f"{how}; {seconds:.0f} CPU seconds of attacks; warnings: {len(result.warnings)}", cpu,
        ),
        Row("the same network on clean images", clean, f"% of {len(x):,} test images", Bound("least", 96), how),
    ]  # fmt: skip


def main(
    arguments: Sequence[str] | None = None,
    *,
    task: ClassifyImage = TASK,
    training: TrainingConfig = TRAINING,
    worst: Attack | None = None,
    images: int = ATTACKED,
    results: Path = RESULTS,
) -> int:
    """`worst` and `images` are for tests: a shorter attack on fewer images."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.mnist_attacks", description=__doc__)
    made.add_argument("--mnist", type=Path, metavar="FOLDER", required=True, help="the four IDX files, plain or .gz")
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = made.parse_args(arguments)
    torch.set_num_threads(1)

    def say(text: str) -> None:
        print(text, flush=True)

    placed = task.with_options(data=None, train=given.mnist)
    try:
        attack = Worst(EPS) if worst is None else worst
        rows = judged(placed, training, given.runs / "mnist-attacks", attack, images, say)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    command = "python -m benchmarks.vision.mnist_attacks --mnist FOLDER"
    settings = {"task": {**task.to_json(), "train": given.mnist.name}, "training": asdict(training)}
    about = About.now(VISION)
    result = Result(
        "mnist_attacks", "MNIST under attack", SAID, rows, commands=[command], settings=settings, about=about
    )
    say(f"written: {result.write(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
