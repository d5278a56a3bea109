"""A generator of digits, evaluated by a classifier that was not used in its training: python -m benchmarks.vision.gan.

    python -m benchmarks.vision.gan --runs FOLDER [--steps N] [--pictures docs/images]

trains or resumes FOLDER/gan, samples 1,000 digits, 100 of each class, and writes the result. The weights are those of
the best validation, by the distance that a first classifier measures; a second classifier, trained from another seed
and also on the validation images, counts the samples that it recognises as the requested digit.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import regard
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Unfinished, train
from benchmarks.vision.result import Picture, Result, Row, Table
from regard.data.images.labelled import Images
from regard.models.sagan import SelfAttentionGAN
from regard.tasks.generate_image.judge import RealImageStats, ReferenceClassifier, spread
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.generate_image.predictor import ImageGenerator, sample_images
from regard.tasks.generate_image.task import EVALUATED, judge_and_images
from regard.tasks.loading import load_run
from regard.tasks.shared.image_data import read_train_and_test
from regard.training.config import TrainingConfig
from regard.viz import Panel, figure
from regard.viz.image.sample_sheet import draw_samples
from regard.viz.plots.image_grid import image_grid

TASK: dict[str, Any] = {}
STEPS = 8000


@dataclass(frozen=True, eq=False)
class Drawn:
    """Samples of the best weights of a run, and real images."""

    pixels: NDArray[np.uint8]  # "n h w c"
    asked: NDArray[np.int64]  # "n"
    train: Images
    test: Images
    judge: ReferenceClassifier
    step: int
    model: SelfAttentionGAN


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.gan")
    made.add_argument("--runs", type=Path, metavar="FOLDER", required=True, help="folder for the runs")
    made.add_argument("--steps", type=int, default=STEPS, help="steps of the training (%(default)s)")
    made.add_argument("--pictures", type=Path, default=Path("docs/images"))
    given = made.parse_args(arguments)
    task, run = GenerateImage.of(**TASK), given.runs / "gan"
    training = TrainingConfig(**{**GenerateImage.training, "steps": given.steps, "threads": 1, "validate_every": 400})
    try:
        train("gan", task, training, run, say)
    except Unfinished as error:
        print(error, file=sys.stderr)
        return 1
    found = judged(task, run)
    draw(found, given.pictures)
    path = result(found, task, training, Spent.of(run)).write()
    say(f"{path}: " + "; ".join(" | ".join(row.cells()) for row in Result.read(path).rows))
    return 0


def judged(task: GenerateImage, run: Path) -> Drawn:
    loaded = load_run(run, "best", "cpu")
    assert isinstance(loaded.predictor, ImageGenerator)
    model = loaded.predictor.model
    judge, test = judge_and_images(task, run, "test")
    asked = np.arange(len(judge.stats.classes)).repeat(EVALUATED)
    pixels = sample_images(model, asked, task.seed + 1)
    return Drawn(pixels, asked, read_train_and_test(task)[0], test, judge, loaded.step, model)


def result(found: Drawn, task: GenerateImage, training: TrainingConfig, spent: Spent | None) -> Result:
    real = RealImageStats.of(found.judge, found.test)
    scores = real.scores(found.pixels, found.asked)
    cpu = None if spent is None else spent.seconds
    how = f"best of {training.steps:,} steps of {task.batch}: step {found.step:,}"
    near = {
        name: nearest(some, found.train.pixels) for name, some in (("", found.pixels), ("real ", found.test.pixels))
    }
    rows = [
        Row(
            "digits sampled by SelfAttentionGAN, recognised as the requested digit",
            scores["recognised"],
            "% of 1,000",
            Bound("least", 70),
            how,
            cpu,
            1,
            f"real test digits: {found.judge.accuracy:.1f} %, by the same classifier",
        ),
        Row(
            "spread: mean distance of two samples of a digit",
            scores["spread"],
            "(Euclid)",
            beside=f"real test digits: {scores['real spread']:.2f}",
            how="pixels from 0 to 1",
        ),
        Row(
            "mean distance of a sample from the nearest training digit",
            near[""],
            "(Euclid)",
            beside=f"real test digits: {near['real ']:.2f}",
            how="copies would have distance 0",
        ),
    ]
    said = (
        "1,000 digits, 100 of each class, are sampled with the weights of the best validation. They are evaluated by a "
        "classifier that was not used to select these weights: it was trained from another seed, and also on the "
        "validation images. Neither the classifier nor the generator was trained on the test digits."
    )
    return Result(
        "gan",
        "Generated digits",
        said,
        rows,
        [each(found)],
        [
            Picture("gan-samples.png", "Ten generated images of every digit on the left, ten real ones on the right"),
            Picture(
                "gan-attention.png",
                "Sampled digits, and the weights of the generator's attention block for some positions",
            ),
        ],
        ["python -m benchmarks.vision.gan --runs runs/vision"],
        {"task": task.to_json(), "training": vars(training)},
    )


def each(found: Drawn) -> Table:
    """The scores of each digit."""
    said, lines = found.judge.predict(found.pixels), []
    for n, name in enumerate(found.judge.stats.classes):
        own, real = found.pixels[found.asked == n], found.test.pixels[found.test.labels == n]
        right = 100 * float((said[found.asked == n] == n).mean())
        lines.append([name, f"{right:.0f} %", f"{spread(own):.2f}", f"{spread(real):.2f}"])
    return Table("Digit by digit", ["digit", "recognised", "spread", "spread of real ones"], lines)


def nearest(pixels: NDArray[np.uint8], known: NDArray[np.uint8]) -> float:
    """The mean distance of images from the nearest known one, with pixels from 0 to 1."""
    a, b = (torch.from_numpy(some.reshape(len(some), -1)).double() / 255 for some in (pixels, known))
    return float(torch.cdist(a, b).amin(1).mean())


def draw(found: Drawn, folder: Path) -> None:
    """Draws real and sampled digits, and the weights of the generator's attention block."""
    rows = []
    for n in range(len(found.judge.stats.classes)):
        real = found.test.pixels[found.test.labels == n][:10]
        rows.append((found.pixels[found.asked == n][:10], real))
    draw_real_and_generated(rows, found.judge.stats.classes, folder / "gan-samples.png")
    path = figure(attention(found.model, (3, 8)), folder / "gan-attention.png")
    # in few colours, to keep it small
    with Image.open(path) as image:
        image.convert("RGB").quantize(64).save(path, optimize=True)


def draw_real_and_generated(
    rows: Sequence[tuple[NDArray[np.uint8], NDArray[np.uint8]]], names: Sequence[str], path: Path
) -> Path:  # "n h w c" each
    """A row per class: generated images on the left, real ones on the right, with a blank column between them."""
    blank = np.full_like(rows[0][0][:1], 255)
    sheet = image_grid([np.concatenate([generated, blank, real]) for generated, real in rows])
    title = "left of the gap: generated; right: real images of the test set"
    return draw_samples(sheet, list(names), [""] * len(names), path, title)


@torch.no_grad()
def attention(model: SelfAttentionGAN, digits: Sequence[int]) -> list[Panel]:
    """A sample of each digit, and the weights of three positions: bright, medium and dark."""
    z = torch.randn(len(digits), model.noise, generator=torch.Generator().manual_seed(1))
    with regard.record(model) as tape:
        x = model(z, torch.tensor(digits))
    (heard,) = tape
    assert heard.grid is not None
    high, wide = heard.grid
    panels = []
    for n, digit in enumerate(digits):
        image = (x[n, 0] + 1) / 2
        panels.append(
            Panel(image, f"a sampled {digit}, γ = {float(model.average.attention.residual):.2f}", stretch=True)
        )
        order = torch.nn.functional.adaptive_avg_pool2d(image[None], (high, wide)).flatten().argsort()
        for place in (order[-1], order[len(order) // 2], order[0]):
            row, column = divmod(int(place), wide)
            looked = heard.weights.dense()[n, 0, int(place)].view(high, wide)
            panels.append(Panel(looked, f"from row {row}, column {column}", stretch=True))
    return panels


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
