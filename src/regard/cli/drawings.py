"""What a trained generator draws: how much of it is recognised, and pictures of a class."""

import json
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from regard.attn import checks
from regard.cli.answers import refuse, tell, write
from regard.cli.loading import ready
from regard.tasks._image_data import recalled
from regard.tasks.generate_image.judge import RealImageStats, ReferenceClassifier
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.generate_image.task import JUDGED, chosen_by, drawn, first_judge, fresh, other_judge
from regard.viz.image.sample_sheet import draw_samples
from regard.viz.plots.image_grid import image_grid

if TYPE_CHECKING:
    from regard.cli.verbs import evaluate, predict


_load = partial(ready, GenerateImage, fresh)


def evaluated(typed: "evaluate.Options") -> int:
    """regard evaluate, of a run that draws: judged for "test" by a classifier that had no part in choosing weights."""
    refuse(typed, ("beam", "length_penalty", "test"), f"is for what writes sentences, and {typed.run} draws")
    loaded = _load(typed.run, typed.weights, typed.device, typed.threads)
    classes = recalled(typed.run).classes
    judge, images = (chosen_by if typed.split == "valid" else other_judge)(loaded.task, typed.run)
    asked = np.arange(len(classes)).repeat(JUDGED)
    begun = time.perf_counter()
    # not the draws that validation has seen
    pixels = drawn(loaded.by, asked, loaded.task.seed + 1)
    seconds = time.perf_counter() - begun
    scores = RealImageStats.of(judge, images).scores(pixels, asked)
    if typed.out is not None:
        write(typed, [f"{classes[a]}\t{classes[b]}" for a, b in zip(asked, judge.says(pixels), strict=True)])
    found = {"split": typed.split or "test", "scores": scores, "judge": judge.accuracy}
    tell(typed, loaded.step, seconds, len(asked), "drawings", found)
    if not typed.json:
        print(_told(judge, typed.split == "valid"))
    return 0


def _told(judge: ReferenceClassifier, chose: bool) -> str:
    part = "chose these weights" if chose else "had no part in the choice of weights"
    return (
        f"The classifier that judges them {part}; of real images that it has not learned from it recognises "
        f"{judge.accuracy:.1f} %. Spread is the mean distance of two of a class, pixels going from 0 to 1."
    )


def predicted(typed: "predict.Options") -> int:
    """regard predict, of a run that draws: pictures of the classes that are named."""
    refuse(typed, ("top",), f"is for what names classes, and {typed.run} draws them")
    loaded = _load(typed.run, typed.weights, typed.device, typed.threads)
    classes = recalled(typed.run).classes
    if not typed.inputs:
        raise ValueError(f"name a class, or several, behind the run: {', '.join(classes)}")
    for name in typed.inputs:
        checks.known("class", name, classes)
    if typed.picture is None:
        raise ValueError("drawings go into a file; give --picture drawn.png")
    count = typed.count or 10
    asked = np.array([classes.index(name) for name in typed.inputs]).repeat(count)
    seed = loaded.task.seed + 1 if typed.seed is None else typed.seed
    pixels = drawn(loaded.by, asked, seed)
    judge = first_judge(loaded.task, typed.run)
    recognised = (judge.says(pixels) == asked).reshape(-1, count).sum(1).tolist()
    known = [f"{right} of {count} recognised" for right in recognised]
    title = f"drawn by {typed.run.name}, seed {seed}"
    draw_samples(image_grid(pixels.reshape(-1, count, *pixels.shape[1:])), typed.inputs, known, typed.picture, title)
    for name, right, said in zip(typed.inputs, recognised, known, strict=True):
        if typed.json:
            told = {"class": name, "drawn": count, "recognised": right, "seed": seed, "picture": str(typed.picture)}
            print(json.dumps(told, ensure_ascii=False))
        else:
            print(f"{name}\t{said}")
    if not typed.json:
        print(f"{typed.picture}: a row for each")
    return 0
