"""What a model that glimpses says of pictures, how good it is, and where it looked."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.cli.answers import refuse, tell
from regard.cli.loading import Weights, recorded, weigh, weighed
from regard.cli.pictures import likeliest, looked_at, worst
from regard.models.ram import RAM
from regard.tasks import sight
from regard.tasks.glimpse import Glimpse
from regard.tasks.glimpsing import paths, seen, split_of
from regard.tasks.pictures import Facts, recalled, scored, tensor
from regard.tasks.restored import restored

if TYPE_CHECKING:
    from regard.cli import evaluate, predict


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model that glimpses, with its weights, and the facts of what it sees."""

    task: Glimpse
    facts: Facts
    model: RAM
    step: int


def load(run: Path, weights: Weights, device: str, threads: int | None) -> Loaded:
    record = recorded(run)
    task, path = restored(Glimpse, record.task), weighed(run, weights)
    model = task.fresh(run)
    assert isinstance(model, RAM)
    return Loaded(task, seen(task, recalled(run)), model, weigh(model, path, device, threads or record.threads))


def evaluated(typed: "evaluate.Options") -> int:
    """regard evaluate, of a run that glimpses: the mean over drawn paths, beside a single one at the means."""
    refuse(
        typed, ("beam", "length_penalty", "test"), f"is for what writes sentences, and {typed.run} classifies images"
    )
    draws = 10 if typed.draws is None else typed.draws
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    images = split_of(loaded.task, typed.split or "test")
    begun = time.perf_counter()
    torch.manual_seed(loaded.task.seed)
    # the path at the means comes first, then those that are drawn
    each = np.stack(list(paths(loaded.model, images.pixels, loaded.facts, draws)))  # "paths n k"
    seconds = time.perf_counter() - begun
    chances = each[1:].mean(0) if draws else each[0]
    if typed.out is not None:
        said = [loaded.facts.classes[n] for n in chances.argmax(-1)]
        typed.out.write_text("".join(f"{name}\n" for name in said), encoding="utf-8", newline="\n")
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
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    pixels = looked_at(typed, loaded.facts)
    if typed.picture is not None and len(typed.inputs) > 1:
        raise ValueError(f"--picture draws one path, and {len(typed.inputs)} pictures are named; name one of them")
    device = next(loaded.model.parameters()).device
    with torch.no_grad():
        looked = loaded.model.look(tensor(pixels, loaded.facts).to(device))
    chances = looked.logits.cpu().double().softmax(-1).numpy()
    told = [{"path": [{"x": x, "y": y} for x, y in one]} for one in sight.paths(looked.places)]
    likeliest(typed, chances, loaded.facts.classes, told)
    if typed.picture is not None:
        _draw(loaded, pixels, typed.picture)
    return 0


def _draw(loaded: Loaded, pixels: np.ndarray[Any, Any], path: Path) -> None:
    """The path of glimpses over one picture."""
    from regard.tape.record import record
    from regard.view.recording_figure import draw_recording

    x = tensor(pixels, loaded.facts).to(next(loaded.model.parameters()).device)
    with torch.no_grad(), record(loaded.model) as tape:
        loaded.model(x)
    draw_recording(tape, path, what="glimpses", image=torch.from_numpy(pixels[0]))
