"""Sampled digits, evaluated by a classifier that had no part in the choice of weights, and their pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import regard
from benchmarks.experiments.extras.captions import few_colours
from benchmarks.experiments.runner import TrainedRun
from regard.tasks.generate_image.judge import spread
from regard.tasks.generate_image.predictor import sample_images
from regard.tasks.generate_image.task import EVALUATED, judge_and_images
from regard.tasks.shared.image_data import read_train_and_test
from regard.viz import Panel, figure
from regard.viz.plots.image_grid import image_grid
from regard.viz.plots.sample_sheet import draw_samples

# digits whose attention is drawn; images per class on the sheet
_ATTENDED, _SHOWN = (3, 8), 10


def _sampled(run: TrainedRun) -> tuple[Any, Any, NDArray[np.uint8], NDArray[np.int64]]:
    """The classifier, real images, samples and their classes."""
    judge, test = judge_and_images(run.config, run.folder, "test")
    labels = np.arange(len(judge.stats.classes)).repeat(EVALUATED)
    return judge, test, sample_images(run.predictor.model, labels, run.config.seed + 1), labels


def values(run: TrainedRun) -> dict[str, Any]:
    """The distance from the nearest training image, and the scores of each digit."""
    judge, test, pixels, labels = _sampled(run)
    known, predicted = read_train_and_test(run.config)[0].pixels, judge.predict(pixels)
    digits = [
        {
            "digit": name,
            "recognised": 100 * float((predicted[labels == n] == n).mean()),
            "spread": spread(pixels[labels == n]),
            "real": spread(test.pixels[test.labels == n]),
        }
        for n, name in enumerate(judge.stats.classes)
    ]
    return {"near": nearest(pixels, known), "near real": nearest(test.pixels, known), "digits": digits}


def nearest(pixels: NDArray[np.uint8], known: NDArray[np.uint8]) -> float:
    """The mean distance of images from the nearest known one, with pixels from 0 to 1."""
    a, b = (torch.from_numpy(some.reshape(len(some), -1)).double() / 255 for some in (pixels, known))
    return float(torch.cdist(a, b).amin(1).mean())


def draw_sheet(run: TrainedRun, path: Path) -> None:
    """A row per class: generated images on the left, real ones on the right, with a blank column between them."""
    judge, test, pixels, labels = _sampled(run)
    names, blank = judge.stats.classes, np.full_like(pixels[:1], 255)
    pairs = [(pixels[labels == n][:_SHOWN], test.pixels[test.labels == n][:_SHOWN]) for n in range(len(names))]
    sheet = image_grid([np.concatenate([generated, blank, real]) for generated, real in pairs])
    title = "left of the gap: generated; right: real images of the test set"
    draw_samples(sheet, list(names), [""] * len(names), path, title)


@torch.no_grad()
def draw_attention(run: TrainedRun, path: Path) -> None:
    """A sample of some digits, and the weights of three positions: bright, medium and dark."""
    model: Any = run.predictor.model
    z = torch.randn(len(_ATTENDED), model.noise, generator=torch.Generator().manual_seed(1))
    with regard.record(model) as recording:
        x = model(z, torch.tensor(_ATTENDED))
    (recorded_map,) = recording
    assert recorded_map.grid is not None
    high, wide = recorded_map.grid
    panels = []
    for n, digit in enumerate(_ATTENDED):
        image = (x[n, 0] + 1) / 2
        title = f"a sampled {digit}, γ = {float(model.average.attention.residual):.2f}"
        panels.append(Panel(image, title, stretch=True))
        order = torch.nn.functional.adaptive_avg_pool2d(image[None], (high, wide)).flatten().argsort()
        for place in (order[-1], order[len(order) // 2], order[0]):
            row, column = divmod(int(place), wide)
            weights = recorded_map.weights.dense()[n, 0, int(place)].view(high, wide)
            panels.append(Panel(weights, f"from row {row}, column {column}", stretch=True))
    few_colours(figure(panels, path), 64)
