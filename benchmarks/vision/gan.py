"""A generator of digits, judged by a classifier that had no part in its training: python -m benchmarks.vision.gan.

    python -m benchmarks.vision.gan --runs FOLDER [--steps N] [--pictures docs/images]

trains, or goes on with, FOLDER/gan; draws 1,000 digits, 100 of each; and writes what came out. The weights are those of
the best validation, by the distance that a first classifier measures; a second one, trained from another seed and with
the validation images as well, says how many drawings it recognises as the digit that was asked for.
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
from regard.tasks import _image_data as pictures
from regard.tasks.generate_image.judge import RealImageStats, ReferenceClassifier, spread
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.generate_image.task import JUDGED, drawn, other_judge
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST
from regard.viz import Panel, figure
from regard.viz.plots.image_grid import image_grid, write_png

TASK: dict[str, Any] = {}
STEPS = 8000


@dataclass(frozen=True, eq=False)
class Drawn:
    """What the best weights of a run draw, beside what is real."""

    pixels: NDArray[np.uint8]  # "n h w c"
    asked: NDArray[np.int64]  # "n"
    train: Images
    test: Images
    judge: ReferenceClassifier
    step: int
    model: SelfAttentionGAN


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.gan")
    made.add_argument("--runs", type=Path, required=True)
    made.add_argument("--steps", type=int, default=STEPS)
    made.add_argument("--pictures", type=Path, default=Path("docs/images"))
    given = made.parse_args(arguments)
    task, run = GenerateImage(**TASK), given.runs / "gan"
    training = TrainingConfig(**{**GenerateImage.TRAINING, "steps": given.steps, "threads": 1, "validate_every": 400})
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
    model = task.fresh(run)
    assert isinstance(model, SelfAttentionGAN)
    step = checkpoint.load(model, run / BEST)["step"]
    model.eval()
    judge, test = other_judge(task, run)
    asked = np.arange(len(judge.facts.classes)).repeat(JUDGED)
    return Drawn(drawn(model, asked, task.seed + 1), asked, pictures.read(task)[0], test, judge, step, model)


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
            "digits drawn by SelfAttentionGAN, recognised as what was asked for",
            scores["recognised"],
            "% of 1,000",
            Bound("least", 70),
            how,
            cpu,
            1,
            f"of real test digits the same classifier recognises {found.judge.accuracy:.1f} %",
        ),
        Row(
            "spread: mean distance of two drawings of a digit",
            scores["spread"],
            "(Euclid)",
            beside=f"of real test digits {scores['real spread']:.2f}",
            how="pixels from 0 to 1",
        ),
        Row(
            "mean distance of a drawing from the nearest training digit",
            near[""],
            "(Euclid)",
            beside=f"of real test digits {near['real ']:.2f}",
            how="0 would be copies",
        ),
    ]
    said = (
        "1,000 digits, 100 of each, are drawn with the weights of the best validation. They are judged by a classifier "
        "that had no part in that choice: it was trained from another seed, and with the validation images as well. "
        "Neither it nor the generator has learned from the test digits that they are compared with."
    )
    return Result(
        "gan",
        "Drawing digits",
        said,
        rows,
        [each(found)],
        [
            Picture(
                "gan-samples.png", "Ten drawings of every digit, white on black, and ten real ones, black on white"
            ),
            Picture("gan-attention.png", "Drawn digits, and where the generator's attention block looks from a place"),
        ],
        ["python -m benchmarks.vision.gan --runs runs/vision"],
        {"task": {name: str(value) for name, value in vars(task).items()}, "training": vars(training)},
    )


def each(found: Drawn) -> Table:
    """Digit by digit."""
    said, lines = found.judge.says(found.pixels), []
    for n, name in enumerate(found.judge.facts.classes):
        own, real = found.pixels[found.asked == n], found.test.pixels[found.test.labels == n]
        right = 100 * float((said[found.asked == n] == n).mean())
        lines.append([name, f"{right:.0f} %", f"{spread(own):.2f}", f"{spread(real):.2f}"])
    return Table("Digit by digit", ["digit", "recognised", "spread", "spread of real ones"], lines)


def nearest(pixels: NDArray[np.uint8], known: NDArray[np.uint8]) -> float:
    """mean over pictures of the least distance from a known one, with pixels from 0 to 1."""
    a, b = (torch.from_numpy(some.reshape(len(some), -1)).double() / 255 for some in (pixels, known))
    return float(torch.cdist(a, b).amin(1).mean())


def draw(found: Drawn, folder: Path) -> None:
    """Real and drawn digits, and what the attention block of the generator looks at."""
    rows = []
    for n in range(len(found.judge.facts.classes)):
        real = found.test.pixels[found.test.labels == n][:10]
        rows.append(np.concatenate([found.pixels[found.asked == n][:10], 255 - real]))
    write_png(folder / "gan-samples.png", image_grid(rows))
    path = figure(attention(found.model, (3, 8)), folder / "gan-attention.png")
    # in few colours, to keep it small
    with Image.open(path) as image:
        image.convert("RGB").quantize(64).save(path, optimize=True)


@torch.no_grad()
def attention(model: SelfAttentionGAN, digits: Sequence[int]) -> list[Panel]:
    """A drawing of each digit, and the weights as seen from three of its places: dark, bright, and in between."""
    z = torch.randn(len(digits), model.noise, generator=torch.Generator().manual_seed(1))
    with regard.record(model) as tape:
        x = model(z, torch.tensor(digits))
    (heard,) = tape
    assert heard.grid is not None
    high, wide = heard.grid
    panels = []
    for n, digit in enumerate(digits):
        image = (x[n, 0] + 1) / 2
        panels.append(Panel(image, f"a drawn {digit}\nγ = {float(model.average.attention.residual):.2f}"))
        order = torch.nn.functional.adaptive_avg_pool2d(image[None], (high, wide)).flatten().argsort()
        for place in (order[-1], order[len(order) // 2], order[0]):
            row, column = divmod(int(place), wide)
            looked = heard.weights.dense()[n, 0, int(place)].view(high, wide)
            low, most = float(looked.min()), float(looked.max())
            stretched = (looked - low) / max(most - low, 1e-9)
            panels.append(Panel(stretched, f"from row {row}, column {column}\n{low:.3f} to {most:.3f}"))
    return panels


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
