"""Every model of the image tasks, as small as possible; under torchrun, a short training of each."""

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
# 5 images in 2 processes: their shares differ
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "convnet": ("classify-image", {"width": 4, "depths": (1,), "gate": "se", "batch": 5}),
    "adversary": ("classify-image", {"width": 4, "depths": (1,), "batch": 5, "adversary": "pgd", "attack_steps": 2}),
    "fine-tuned": ("classify-image", {"model": "pretrained", "batch": 5}),
    "rows": ("classify-image", {"model": "rows", "width": 3, "heads": 2, "batch": 5, "dropout": 0.0}),
    "mlp": ("classify-image", {"model": "mlp", "hidden": (6, 5), "gate": "gated-units", "batch": 5}),
    "stn": ("classify-image", {"model": "stn", "width": 4, "depths": (1,), "batch": 5}),
    "soft": ("caption", {**_CAPTION, "attention": "soft"}),
    "hard": ("caption", {**_CAPTION, "attention": "hard"}),
    "conv": ("caption", {**_CAPTION, "model": "conv", "layers": 1, "width": 6}),
    "fine-tuned captions": (
        "caption",
        {"tokens": "words", "batch": 16, "width": 5, "hidden": 7, "model": "pretrained"},
    ),
    "glimpse": ("glimpse", {"what": 4, "where": 4, "glimpse": 6, "hidden": 6, "glimpses": 2, "batch": 5}),
    "generate-image": ("generate-image", {"width": 2, "noise": 3, "judge": 1, "batch": 5, "keep": 0.5}),
}
# nothing is sampled, and no row depends on another: several processes compute what one computes
EXACT = ("rows", "soft")


def write_data(folder: Path) -> None:
    """Images with captions, images by class, and a released encoder."""
    # tests.tasks.encoders imports transformers
    from tests.tasks.encoders import vit_encoder_folder

    vit_encoder_folder(folder / "vit")
    draw, lines = np.random.default_rng(0), []
    for n in range(24):
        name = ("cat", "dog")[n % 2]
        path = folder / "classes" / name / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8), np.uint8)).save(path)
        lines.append(f"classes/{name}/{n}.png\ta {name}{' again' * (n % 3)}\n")
    (folder / "captions.tsv").write_text("".join(lines), encoding="utf-8")


def task(name: str, folder: Path) -> Any:
    task_name, options = SMALL[name]
    train = folder / ("captions.tsv" if task_name == "caption" else "classes")
    encoder = {"encoder": folder / "vit"} if options.get("model") == "pretrained" else {}
    return TASKS[task_name].of(train=train, **options, **encoder)


def training(**options: Any) -> TrainingConfig:
    small = {"steps": 2, "accumulate": 2, "schedule": "constant", "warmup": 0, "threads": 1, "device": "cpu"}
    return TrainingConfig(**{**small, **options})


if __name__ == "__main__":
    # steps.py DATA RUNS: every process writes its last weights into a file
    import os
    import sys

    steppers: list[Stepper] = []

    class KeptStepper(Stepper):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            steppers.append(self)

    fit.Stepper = KeptStepper  # type: ignore[misc]
    torch.set_num_threads(1)
    data, runs = map(Path, sys.argv[1:])
    rank = os.environ["RANK"]
    for name in SMALL:
        list(fit.fit(task(name, data), runs / name, training()))
        weights = {key: p.tolist() for key, p in steppers[-1].model.named_parameters()}
        (runs / f"{name}.{rank}.json").write_text(json.dumps(weights))
