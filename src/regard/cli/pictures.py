"""What a trained classifier says of pictures: its score, and single ones."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.cli.answers import refuse, tell, write
from regard.cli.recording_output import draw
from regard.cli.sights import classifying
from regard.data.images.labelled import Images, read_pictures
from regard.tasks._image_data import ImageStats, scored, split_of
from regard.tasks._image_predictors import Classifying
from regard.tasks.classify_image.task import probabilities

if TYPE_CHECKING:
    from regard.cli.verbs import evaluate, predict
    from regard.cli.watching import Watched


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
    sight = classifying(typed.run, typed.weights, typed.device, typed.threads).by
    facts = sight.facts
    pixels = looked_at(typed, facts)
    seen = None if typed.picture is None else _watched(typed, sight)
    likeliest(typed, probabilities(sight.model, pixels, facts), facts.classes)
    if seen is not None and typed.picture is not None:
        draw(seen, typed.picture)
    return 0


def _watched(typed: "predict.Options", sight: Classifying) -> "Watched":
    """What was looked at in the one picture that is to be drawn over."""
    from regard.cli.listening import taped
    from regard.cli.watching import looked

    if len(typed.inputs) > 1:
        raise ValueError(f"--picture draws over one picture, and {len(typed.inputs)} are named; name one of them")
    seen = looked(sight, typed.run, Path(typed.inputs[0]), (), taped)
    if not len(seen.recording):
        raise ValueError(f"--picture draws what gates looked at, and {typed.run} has none; leave it out")
    return seen


def looked_at(typed: "predict.Options", facts: ImageStats) -> NDArray[np.uint8]:  # -> "n h w c"
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
