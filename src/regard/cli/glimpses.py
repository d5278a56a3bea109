"""What a model that glimpses says of pictures, how good it is, and where it looked."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.cli.answers import refuse, tell, write
from regard.cli.pictures import likeliest, looked_at, worst
from regard.cli.recording_output import draw
from regard.cli.sights import glimpsing
from regard.tasks import _image_predictors as sight
from regard.tasks._image_data import scored, tensor
from regard.tasks.glimpse.task import paths, split_of

if TYPE_CHECKING:
    from regard.cli.verbs import evaluate, predict


def evaluated(typed: "evaluate.Options") -> int:
    """regard evaluate, of a run that glimpses: the mean over drawn paths, beside a single one at the means."""
    refuse(
        typed, ("beam", "length_penalty", "test"), f"is for what writes sentences, and {typed.run} classifies images"
    )
    draws = 10 if typed.draws is None else typed.draws
    loaded = glimpsing(typed.run, typed.weights, typed.device, typed.threads)
    model, facts = loaded.by.model, loaded.by.facts
    images = split_of(loaded.task, typed.split or "test")
    begun = time.perf_counter()
    torch.manual_seed(loaded.task.seed)
    # the path at the means comes first, then those that are drawn
    each = np.stack(list(paths(model, images.pixels, facts, draws)))  # "paths n k"
    seconds = time.perf_counter() - begun
    chances = each[1:].mean(0) if draws else each[0]
    write(typed, [facts.classes[n] for n in chances.argmax(-1)])
    alone = [scored(one, images.labels)["accuracy"] for one in each]
    found: dict[str, Any] = {"split": typed.split or "test", "scores": scored(chances, images.labels)}
    found |= {"draws": draws, "at_the_means": alone[0], "drawn": alone[1:]}
    tell(typed, loaded.step, seconds, len(images), "images", found)
    if not typed.json:
        single = f"; a path alone {np.mean(alone[1:]):.2f} %" if draws else ""
        drawn = f"Paths drawn and averaged: {draws}{single}, " if draws else "One path, "
        print(f"{drawn}at the means of its places {alone[0]:.2f} %.")
        if told := worst(images, chances.argmax(-1)):
            print(f"The hardest classes: {told}.")
    return 0


def predicted(typed: "predict.Options") -> int:
    """regard predict, of a run that glimpses, at the means of its places."""
    by = glimpsing(typed.run, typed.weights, typed.device, typed.threads).by
    pixels = looked_at(typed, by.facts)
    if typed.picture is not None and len(typed.inputs) > 1:
        raise ValueError(f"--picture draws one path, and {len(typed.inputs)} pictures are named; name one of them")
    device = next(by.model.parameters()).device
    with torch.no_grad():
        looked = by.model.look(tensor(pixels, by.facts).to(device))
    chances = looked.logits.cpu().double().softmax(-1).numpy()
    told = [{"path": [{"x": x, "y": y} for x, y in one]} for one in sight.paths(looked.places)]
    likeliest(typed, chances, by.facts.classes, told)
    if typed.picture is not None:
        from regard.cli.listening import taped
        from regard.cli.watching import looked as watched

        draw(watched(by, typed.run, Path(typed.inputs[0]), (), taped), typed.picture)
    return 0
