"""Every task that looks at pictures or makes some, as small as it goes; under torchrun, a short training of each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from regard.tasks.registry import TASKS
from regard.training import fit
from regard.training.config import TrainingConfig
from regard.training.step import Stepper

_CAPTION: dict[str, Any] = {"tokens": "words", "batch": 16, "annotation": 6, "channels": 4, "width": 5, "hidden": 7}
# 5 images by 2 processes: no share is the other one
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "convnet": ("classify-image", {"width": 4, "depths": (1,), "gate": "se", "batch": 5}),
    "rows": ("classify-image", {"model": "rows", "width": 3, "heads": 2, "batch": 5, "dropout": 0.0}),
    "soft": ("caption", {**_CAPTION, "attention": "soft"}),
    "hard": ("caption", {**_CAPTION, "attention": "hard"}),
    "glimpse": ("glimpse", {"what": 4, "where": 4, "glimpse": 6, "hidden": 6, "glimpses": 2, "batch": 5}),
    "generate": ("generate", {"width": 2, "noise": 3, "judge": 1, "batch": 5, "keep": 0.5}),
}
# nothing is drawn, and no row knows of another: several processes must find what one finds
EXACT = ("rows", "soft")


def written(folder: Path) -> None:
    """Pictures with their captions, and pictures by class."""
    draw, lines = np.random.default_rng(0), []
    for n in range(24):
        name = ("cat", "dog")[n % 2]
        path = folder / "classes" / name / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8), np.uint8)).save(path)
        lines.append(f"classes/{name}/{n}.png\ta {name}{' again' * (n % 3)}\n")
    (folder / "captions.tsv").write_text("".join(lines), encoding="utf-8")


def task(name: str, folder: Path) -> Any:
    kind, options = SMALL[name]
    train = folder / ("captions.tsv" if kind == "caption" else "classes")
    return TASKS[kind](train=train, **options)


def training(**options: Any) -> TrainingConfig:
    told = {"steps": 2, "accumulate": 2, "schedule": "constant", "warmup": 0, "threads": 1, "device": "cpu", **options}
    return TrainingConfig(**told)


if __name__ == "__main__":
    # steps.py DATA RUNS: every process leaves the weights that it ended with
    import os
    import sys

    held: list[Stepper] = []

    class Held(Stepper):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            held.append(self)

    fit.Stepper = Held  # type: ignore[misc]
    torch.set_num_threads(1)
    data, runs = map(Path, sys.argv[1:])
    rank = os.environ["RANK"]
    for name in SMALL:
        for _ in fit.fit(task(name, data), runs / name, training()):
            pass
        weights = {key: p.tolist() for key, p in held[-1].model.named_parameters()}
        (runs / f"{name}.{rank}.json").write_text(json.dumps(weights))
