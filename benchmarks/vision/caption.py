"""Captions of digit scenes, soft and hard: python -m benchmarks.vision.caption --runs FOLDER [soft] [hard].

Trains, or goes on with, FOLDER/caption-soft and FOLDER/caption-hard, and judges the weights of the best validation on
1,000 scenes of which neither the arrangement nor the images of the digits were learned from. `--report` judges the runs
that are there, whatever step they stand at. What is told of a run is what it recorded itself.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Unfinished, train
from benchmarks.vision.result import Picture, Result, Row, Table
from regard.cli.captions import draw
from regard.common.dataclass_json import dataclass_from_json
from regard.data.embedded.scenes import NAMES, Captioned
from regard.decoding.search import Beam, Greedy
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.task import evaluate, read
from regard.tasks.translate.predictor import TranslationHypothesis
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, LAST, RunRecord

Attention = Literal["soft", "hard"]
# what must be reached: BLEU-4, and the share of words for digits that point at them
BOUNDS: dict[Attention, tuple[float, float]] = {"soft": (95.0, 90.0), "hard": (90.0, 80.0)}
STEPS: dict[Attention, int] = {"soft": 1600, "hard": 2200}
TRAINING: dict[str, Any] = {"save_every": 100, "log_every": 50}
_BEAM = 5


@dataclass(frozen=True, eq=False)
class Judged:
    """What the best weights of a run come to on its test scenes."""

    name: Attention
    task: Caption
    training: TrainingConfig
    step: int
    reached: int  # the step at which the run stands
    test: Captioned
    spent: Spent | None
    greedy: dict[str, float]
    beam: dict[str, float]
    said: Sequence[TranslationHypothesis]
    changed: str = ""  # how the training was changed on its way


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.caption")
    made.add_argument("names", nargs="*", default=[])
    made.add_argument("--runs", type=Path, required=True)
    made.add_argument("--steps", type=int)
    made.add_argument("--report", action="store_true", help="judge what is trained, and train nothing")
    made.add_argument("--pictures", type=Path, default=Path("docs/images"))
    given = made.parse_args(arguments)
    if unknown := [name for name in given.names if name not in BOUNDS]:
        made.error(f"unknown {unknown[0]!r}; known are: {', '.join(BOUNDS)}")
    for name in [name for name in BOUNDS if name in (given.names or BOUNDS)]:
        try:
            if not given.report:
                train(name, Caption(attention=name), of(name, given.steps), given.runs / f"caption-{name}", say)
        except Unfinished as error:
            print(error, file=sys.stderr)
            return 1
    there = [name for name in BOUNDS if (given.runs / f"caption-{name}" / BEST).exists()]
    found = [judged(name, given.runs / f"caption-{name}") for name in there]
    for one in found:
        _drawn(one, given.runs / f"caption-{one.name}", given.pictures)
    path = result(found).write()
    for row in Result.read(path).rows:
        say(" | ".join(row.cells()))
    return 0


def of(name: Attention, steps: int | None) -> TrainingConfig:
    return TrainingConfig(**{**Caption.TRAINING, **TRAINING, "threads": 1, "steps": steps or STEPS[name]})


def judged(name: Attention, run: Path) -> Judged:
    record = RunRecord.read(run)
    task = dataclass_from_json(Caption, record.task)
    test = read(task, "test")
    captioner, step = loaded(task, run)
    reached = checkpoint.read(run / LAST).facts["step"] if (run / LAST).exists() else step
    greedy, said = evaluate(captioner, test, Greedy())
    beam, _ = evaluate(captioner, test, Beam(_BEAM))
    spent = Spent.of(run)
    return Judged(name, task, record.training, step, reached, test, spent, greedy, beam, said, _changed(record))


def _changed(record: RunRecord) -> str:
    """What a resume changed: the schedule goes over as many steps as are planned."""
    return "".join(f"; planned for {old.steps:,} until step {at:,}" for (_, old), (at, _) in pairwise(record.history))


def loaded(task: Caption, run: Path) -> tuple[Captioner, int]:
    """The captioner of a run with its best weights, and of which step they are."""
    captioner = Captioner.of(task, run)
    step = checkpoint.load(captioner.model, run / BEST)["step"]
    captioner.model.eval()
    return captioner, step


def result(found: Sequence[Judged]) -> Result:
    rows = []
    count = max((len(one.test) for one in found), default=0)
    for one in found:
        least, points = BOUNDS[one.name]
        how = f"best of {one.reached:,} steps: step {one.step:,}{one.changed}"
        if one.training.steps is not None and one.reached < one.training.steps:
            how += f"; unfinished, {one.training.steps:,} steps are planned"
        cpu = None if one.spent is None else one.spent.seconds
        bleu = f"beam {_BEAM}: {one.beam['bleu']:.2f}; right to the letter: {one.greedy['exact']:.1f} %"
        named = f"captions of digit scenes, {one.name}"
        rows.append(Row(named, one.greedy["bleu"], "BLEU-4", Bound("least", least), how, cpu, 2, bleu))
        place, beside = one.greedy["pointing"], ""
        if "pointing_drawn" in one.greedy:
            place, beside = one.greedy["pointing_drawn"], f"the likeliest place: {place:.1f} %"
        what = "the drawn place" if beside else "the peak"
        rows.append(Row(f"{named}: {what} lies on the digit", place, "%", Bound("least", points), how, None, 1, beside))
    said = (
        f"{count:,} scenes of one to three digits, whose arrangements and whose digits' images were not learned from; "
        "captions by the likeliest word each time, BLEU by sacrebleu against every sentence that is right. *Pointing*: "
        "of the words that name a digit, how many look at the middle of a place that lies within that digit's 8 × 8 "
        "pixels; a word for a digit that is not there is a miss."
    )
    pictures = [Picture(f"caption-{one.name}.png", f"A test scene told by the {one.name} attention") for one in found]
    commands = ["python -m benchmarks.vision.caption --runs runs/vision"]
    settings = {
        str(one.name): {"task": {k: str(v) for k, v in vars(one.task).items()}, "training": vars(one.training)}
        for one in found
    }
    return Result("caption", "Captions", said, rows, _tables(found), pictures, commands, settings)


def _tables(found: Sequence[Judged]) -> list[Table]:
    names = ["bleu", "exact", "pointing", "pointing_drawn"]
    lines = [
        [f"{one.name}, {how}", *(f"{scores[name]:.2f}" if name in scores else "" for name in names)]
        for one in found
        for how, scores in (("greedy", one.greedy), (f"beam {_BEAM}", one.beam))
    ]
    head = ["attention, search", "BLEU-4", "exact %", "pointing: the peak %", "pointing: a drawn place %"]
    return [Table("By search", head, lines)]


def _drawn(one: Judged, run: Path, folder: Path) -> Path:
    """The first test scene of three digits that is told rightly, word by word."""
    test, (captioner, _) = one.test, loaded(one.task, run)
    right = [n for n in range(len(test)) if one.said[n].text in test.captions[n]] or [0]
    n = max(right[:100], key=lambda n: sum(word.strip(",") in NAMES for word in one.said[n].text.split()))
    path = draw(captioner, np.asarray(test.pixels[n]), one.said[n], folder / f"caption-{one.name}.png")
    # in few colours, to keep it small
    with Image.open(path) as image:
        image.convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    return path


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
