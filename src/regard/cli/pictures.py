"""What a trained classifier says of pictures: its score, and single ones."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.cli.loading import Weights, recorded, weigh, weighed
from regard.cli.progress import counted, number
from regard.data.images import Images
from regard.tasks.classification import probabilities
from regard.tasks.classify_image import ClassifyImage
from regard.tasks.pictures import Facts, recalled, scored, split_of

if TYPE_CHECKING:
    from regard.cli.evaluate import Options


@dataclass(frozen=True, eq=False)
class Loaded:
    """A classifier of images with its weights."""

    task: ClassifyImage
    facts: Facts
    model: nn.Module
    step: int


def load(run: Path, weights: Weights, device: str, threads: int | None) -> Loaded:
    record = recorded(run)
    if record.kind != "ClassifyImage":
        raise ValueError(f"{run} is a run of {record.kind}, which does not classify pictures; name another one")
    task, path = ClassifyImage.told(record.task), weighed(run, weights)
    model = task.fresh(run)
    return Loaded(task, recalled(run), model, weigh(model, path, device, threads or record.threads))


def evaluated(typed: "Options") -> int:
    """regard evaluate, of a run that classifies."""
    for name in ("beam", "length_penalty", "test"):
        if getattr(typed, name) not in (None, ()):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is for translators, and {typed.run} classifies images; leave it out")
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    images = split_of(loaded.task, typed.split or "test")
    begun = time.perf_counter()
    chances = probabilities(loaded.model, images.pixels, loaded.facts)
    seconds = time.perf_counter() - begun
    scores = scored(chances, images.labels)
    said = [loaded.facts.classes[n] for n in chances.argmax(-1)]
    if typed.out is not None:
        typed.out.write_text("".join(f"{name}\n" for name in said), encoding="utf-8", newline="\n")
    found = {
        "run": str(typed.run),
        "weights": typed.weights,
        "step": loaded.step,
        "split": typed.split or "test",
        "images": len(images),
        "scores": scores,
        "seconds": seconds,
        "images_per_second": len(images) / seconds,
    }
    if typed.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, value in scores.items():
        print(f"{name:10}{number(value)}")
    print(
        f"{counted(len(images), 'image')} of the {found['split']} split in {seconds:.1f} s; {typed.weights} weights, "
        f"of step {loaded.step:,}"
    )
    if worst := _worst(images, chances.argmax(-1)):
        print(f"The hardest classes: {worst}.")
    return 0


def _worst(images: Images, said: NDArray[np.int64]) -> str:
    """The classes that are missed most, at most three of them."""
    shares = {}
    for label, name in enumerate(images.classes):
        there = images.labels == label
        if there.any() and (missed := int((said[there] != label).sum())):
            shares[name] = 100 * (1 - missed / int(there.sum()))
    told: Sequence[str] = sorted(shares, key=lambda name: (shares[name], name))[:3]
    return ", ".join(f"{name} {shares[name]:.1f} %" for name in told)
