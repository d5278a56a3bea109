"""MNIST by a ConvNet with SimAM and by the gated attention cell: `python -m benchmarks.vision.mnist --mnist FOLDER`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import RESULTS, Result, Row
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.classify_image.task import image_scores
from regard.tasks.loading import load_run
from regard.tasks.shared.image_data import read_train_and_test
from regard.training.config import TrainingConfig


@dataclass(frozen=True)
class Case:
    """A training on the images of a folder, and the accuracy that it must reach on the test images."""

    what: str
    how: str
    task: ClassifyImage
    training: TrainingConfig
    bound: Bound


# a tenth of 60,000 images is held out to select the best weights: an epoch has 422 batches of 128
_EPOCH = 422
_TRAINING = TrainingConfig(
    epochs=4, schedule="cosine", warmup=150, validate_every=_EPOCH, save_every=_EPOCH, log_every=100, threads=1
)
CASES: dict[str, Case] = {
    "mnist-rows": Case(
        "MNIST, gated attention cell reading rows",
        "7 rows of 7 overlapping patches, 12 heads of 16, 10 epochs, shifts of 1 pixel",
        ClassifyImage.of(model="rows", batch=128),
        replace(_TRAINING, epochs=10, lr=1.2e-2, weight_decay=0.01),
        Bound("least", 98.0),
    ),
    "mnist-simam": Case(
        "MNIST, ConvNet with SimAM",
        "16, 32 and 64 channels, 4 epochs, shifts of 1 pixel",
        ClassifyImage.of(gate="simam", width=16, batch=128),
        replace(_TRAINING, lr=6e-3, weight_decay=0.02),
        Bound("least", 99.3),
    ),
}

SAID = """\
Each model is evaluated once on the 10,000 test images, with the weights of the best likelihood on the held-out tenth of
the training images; settings were chosen without the test images.
"""


def judged(name: str, case: Case, run: Path, say: Say) -> tuple[Row, dict[str, object]]:
    """Trains to the end of the case; returns its accuracy on the test images, and its settings."""
    started, _ = train(name, case.task, case.training, run, say)
    loaded = load_run(run, "best", "cpu")
    assert isinstance(loaded.predictor, ImageClassifier)
    test = read_train_and_test(case.task)[1]
    scores = image_scores(loaded.predictor.model, test, loaded.predictor.stats)
    spent = Spent.of(run)
    row = Row(
        case.what,
        scores["accuracy"],
        f"% of {len(test):,} test images",
        case.bound,
        f"{case.how}; {started.parameters:,} parameters",
        None if spent is None else spent.seconds,
    )
    say(f"{name}: {row.value:.2f} {row.unit} ({case.bound}: {row.verdict})")
    # the files without their paths
    task = {**case.task.to_json(), "train": None if case.task.train is None else case.task.train.name}
    settings = {"task": task, "training": asdict(case.training), "best_step": loaded.step, "scores": scores}
    return row, settings


def run(cases: Mapping[str, Case], runs: Path, results: Path, say: Say) -> Path:
    found = {name: judged(name, case, runs / name, say) for name, case in cases.items()}
    command = "python -m benchmarks.vision.mnist --mnist FOLDER"
    rows, settings = [row for row, _ in found.values()], {name: one for name, (_, one) in found.items()}
    return Result("mnist", "MNIST", SAID, rows, commands=[command], settings=settings).write(results)


def main(arguments: Sequence[str] | None = None, cases: Mapping[str, Case] = CASES, results: Path = RESULTS) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.mnist", description=__doc__)
    made.add_argument("--mnist", type=Path, metavar="FOLDER", required=True, help="the four IDX files, plain or .gz")
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = made.parse_args(arguments)
    placed = {
        name: replace(case, task=case.task.with_options(data=None, train=given.mnist)) for name, case in cases.items()
    }
    try:
        print(f"written: {run(placed, given.runs, results, lambda text: print(text, flush=True))}")
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
