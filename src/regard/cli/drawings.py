"""What a trained generator draws: how much of it is recognised, and pictures of a class."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.cli.answers import refuse, tell
from regard.cli.loading import Weights, recorded, weigh, weighed
from regard.data.grid import grid, write_picture
from regard.models.sagan import SelfAttentionGAN
from regard.parts import checks
from regard.tasks.generate import Generate
from regard.tasks.generated import Judge, Real
from regard.tasks.generation import JUDGED, chosen_by, drawn, first_judge, other_judge
from regard.tasks.pictures import recalled
from regard.tasks.restored import restored

if TYPE_CHECKING:
    from regard.cli import evaluate, predict


@dataclass(frozen=True, eq=False)
class Loaded:
    """A generator with its weights, and the names of its classes."""

    task: Generate
    model: SelfAttentionGAN
    classes: list[str]
    step: int


def load(run: Path, weights: Weights, device: str, threads: int | None) -> Loaded:
    record = recorded(run)
    task, path = restored(Generate, record.task), weighed(run, weights)
    model = task.fresh(run)
    assert isinstance(model, SelfAttentionGAN)
    return Loaded(task, model, recalled(run).classes, weigh(model, path, device, threads or record.threads))


def evaluated(typed: "evaluate.Options") -> int:
    """regard evaluate, of a run that draws: judged for "test" by a classifier that had no part in choosing weights."""
    refuse(typed, ("beam", "length_penalty", "test"), f"is for what writes sentences, and {typed.run} draws")
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    judge, images = (chosen_by if typed.split == "valid" else other_judge)(loaded.task, typed.run)
    asked = np.arange(len(loaded.classes)).repeat(JUDGED)
    begun = time.perf_counter()
    # not the draws that validation has seen
    pixels = drawn(loaded.model, asked, loaded.task.seed + 1)
    seconds = time.perf_counter() - begun
    scores = Real.of(judge, images).scores(pixels, asked)
    if typed.out is not None:
        said = judge.says(pixels)
        lines = [f"{loaded.classes[a]}\t{loaded.classes[b]}\n" for a, b in zip(asked, said, strict=True)]
        typed.out.write_text("".join(lines), encoding="utf-8", newline="\n")
    found = {"split": typed.split or "test", "scores": scores, "judge": judge.accuracy}
    tell(typed, loaded.step, seconds, len(asked), "drawings", found)
    if not typed.json:
        print(_told(judge, typed.split == "valid"))
    return 0


def _told(judge: Judge, chose: bool) -> str:
    part = "chose these weights" if chose else "had no part in the choice of weights"
    return (
        f"The classifier that judges them {part}; of real images that it has not learned from it recognises "
        f"{judge.accuracy:.1f} %. Spread is the mean distance of two of a class, pixels going from 0 to 1."
    )


def predicted(typed: "predict.Options") -> int:
    """regard predict, of a run that draws: pictures of the classes that are named."""
    refuse(typed, ("top",), f"is for what names classes, and {typed.run} draws them")
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    if not typed.inputs:
        raise ValueError(f"name a class, or several, behind the run: {', '.join(loaded.classes)}")
    for name in typed.inputs:
        checks.known("class", name, loaded.classes)
    if typed.picture is None:
        raise ValueError("drawings go into a file; give --picture drawn.png")
    count = typed.count or 10
    asked = np.array([loaded.classes.index(name) for name in typed.inputs]).repeat(count)
    seed = loaded.task.seed + 1 if typed.seed is None else typed.seed
    pixels = drawn(loaded.model, asked, seed)
    judge = first_judge(loaded.task, typed.run)
    right = (judge.says(pixels) == asked).reshape(-1, count).sum(1).tolist()
    write_picture(typed.picture, grid(pixels.reshape(-1, count, *pixels.shape[1:])))
    for name, known in zip(typed.inputs, right, strict=True):
        if typed.json:
            told = {"class": name, "drawn": count, "recognised": known, "seed": seed, "picture": str(typed.picture)}
            print(json.dumps(told, ensure_ascii=False))
        else:
            print(f"{name}\t{known} of {count} recognised")
    if not typed.json:
        print(f"{typed.picture}: a row for each")
    return 0
