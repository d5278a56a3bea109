"""What a trained classifier says of pictures: its score, and single ones."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.cli.answers import refuse, tell, write
from regard.cli.sights import classifying
from regard.data.images import Images, read_pictures
from regard.tasks.classification import probabilities
from regard.tasks.pictures import Facts, scored, split_of

if TYPE_CHECKING:
    from regard.cli import evaluate, predict


def evaluated(typed: "evaluate.Options") -> int:
    """regard evaluate, of a run that classifies."""
    refuse(
        typed, ("beam", "length_penalty", "test"), f"is for what writes sentences, and {typed.run} classifies images"
    )
    loaded = classifying(typed.run, typed.weights, typed.device, typed.threads)
    facts = loaded.by.facts
    images = split_of(loaded.task, typed.split or "test")
    begun = time.perf_counter()
    chances = probabilities(loaded.by.model, images.pixels, facts)
    seconds = time.perf_counter() - begun
    write(typed, [facts.classes[n] for n in chances.argmax(-1)])
    found = {"split": typed.split or "test", "scores": scored(chances, images.labels)}
    tell(typed, loaded.step, seconds, len(images), "images", found)
    if not typed.json and (told := worst(images, chances.argmax(-1))):
        print(f"The hardest classes: {told}.")
    return 0


def predicted(typed: "predict.Options") -> int:
    """regard predict, of a run that classifies."""
    refuse(typed, ("picture",), f"draws a path or words; `regard view {typed.run} PICTURE --out a.png` draws gates")
    sight = classifying(typed.run, typed.weights, typed.device, typed.threads).by
    facts = sight.facts
    chances = probabilities(sight.model, looked_at(typed, facts), facts)
    likeliest(typed, chances, facts.classes)
    return 0


def looked_at(typed: "predict.Options", facts: Facts) -> NDArray[np.uint8]:  # -> "n h w c"
    """The pictures that were named, as large as those that were learned from."""
    refuse(typed, ("count", "seed"), f"is for what draws pictures, and {typed.run} looks at them")
    if not typed.inputs:
        raise ValueError("name a picture, or several, behind the run")
    return read_pictures([Path(name) for name in typed.inputs], (facts.width, facts.height), facts.channels)


def likeliest(
    typed: "predict.Options",
    chances: NDArray[np.float64],
    classes: Sequence[str],
    beside: Sequence[Mapping[str, Any]] | None = None,
) -> None:  # "n k"
    """A line for each picture; what else is known of it goes `beside` into its JSON."""
    for name, row, more in zip(typed.inputs, chances, beside or [{}] * len(chances), strict=True):
        best = row.argsort()[::-1][: typed.top or 1]
        if typed.json:
            told = {classes[n]: float(row[n]) for n in best}
            print(json.dumps({"file": name, "classes": told, **more}, ensure_ascii=False))
        else:
            print(f"{name}\t" + "\t".join(f"{classes[n]} {100 * row[n]:.1f} %" for n in best))


def worst(images: Images, said: NDArray[np.int64]) -> str:
    """The classes that are missed most, at most three of them."""
    shares = {}
    for label, name in enumerate(images.classes):
        there = images.labels == label
        if there.any() and (missed := int((said[there] != label).sum())):
            shares[name] = 100 * (1 - missed / int(there.sum()))
    told: Sequence[str] = sorted(shares, key=lambda name: (shares[name], name))[:3]
    return ", ".join(f"{name} {shares[name]:.1f} %" for name in told)
