"""Captions of digit scenes, soft and hard attention: python -m benchmarks.vision.caption --runs FOLDER [soft] [hard].

Trains or resumes FOLDER/caption-soft and FOLDER/caption-hard, and evaluates the weights of the best validation on 1,000
scenes whose arrangements and digit images are not in the training data. `--report` evaluates the existing runs, at
whatever step. The settings in the result are those that each run recorded.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Unfinished, train
from benchmarks.vision.result import Picture, Result, Row, Table
from regard.data.embedded.scenes import NAMES, CaptionedImages
from regard.decoding.search import Beam, Greedy
from regard.recording.record import record
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.task import caption_scores, read_captioned
from regard.tasks.loading import load_run
from regard.tasks.shared.text_generation import GeneratedText
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, LAST, RunRecord
from regard.viz.recording.figures import draw_recording

Attention = Literal["soft", "hard"]
# targets: BLEU-4, and the share of digit words whose attention is on the digit
BOUNDS: dict[Attention, tuple[float, float]] = {"soft": (95.0, 90.0), "hard": (90.0, 80.0)}
STEPS: dict[Attention, int] = {"soft": 1600, "hard": 2200}
TRAINING: dict[str, Any] = {"save_every": 100, "log_every": 50}
_BEAM = 5


@dataclass(frozen=True, eq=False)
class Judged:
    """The scores of the best weights of a run on its test scenes."""

    name: Attention
    task: Caption
    training: TrainingConfig
    step: int
    reached: int  # the last step of the run
    test: CaptionedImages
    spent: Spent | None
    greedy: dict[str, float]
    beam: dict[str, float]
    said: Sequence[GeneratedText]
    changed: str = ""  # changes of the training options during the run


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.caption")
    made.add_argument("names", nargs="*", default=[], help=f"of {', '.join(BOUNDS)}; if left out, all")
    made.add_argument("--runs", type=Path, metavar="FOLDER", required=True, help="folder for the runs")
    made.add_argument("--steps", type=int, help="steps per training")
    made.add_argument("--report", action="store_true", help="evaluate the existing runs, without training")
    made.add_argument("--pictures", type=Path, default=Path("docs/images"))
    given = made.parse_args(arguments)
    if unknown := [name for name in given.names if name not in BOUNDS]:
        made.error(f"unknown {unknown[0]!r}; known are: {', '.join(BOUNDS)}")
    for name in [name for name in BOUNDS if name in (given.names or BOUNDS)]:
        try:
            if not given.report:
                train(name, Caption.of(attention=name), of(name, given.steps), given.runs / f"caption-{name}", say)
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
    return TrainingConfig(**{**Caption.training, **TRAINING, "threads": 1, "steps": steps or STEPS[name]})


def judged(name: Attention, run: Path) -> Judged:
    record = RunRecord.read(run)
    captioner, task, step = loaded(run)
    test = read_captioned(task, "test")
    reached = checkpoint.read(run / LAST).facts["step"] if (run / LAST).exists() else step
    greedy, said = caption_scores(captioner, test, Greedy())
    beam, _ = caption_scores(captioner, test, Beam(_BEAM))
    spent = Spent.of(run)
    return Judged(name, task, record.training, step, reached, test, spent, greedy, beam, said, _changed(record))


def _changed(record: RunRecord) -> str:
    """The planned steps before each resume: the schedule depends on them."""
    return "".join(
        f"; planned for {before.training.steps:,} until step {after.step:,}"
        for before, after in pairwise(record.history)
    )


def loaded(run: Path) -> tuple[Captioner, Caption, int]:
    """The captioner of a run with its best weights, its options, and the step of the weights."""
    found = load_run(run, "best", "cpu")
    assert isinstance(found.predictor, Captioner)
    assert isinstance(found.config, Caption)
    return found.predictor, found.config, found.step


def result(found: Sequence[Judged]) -> Result:
    rows = []
    count = max((len(one.test) for one in found), default=0)
    for one in found:
        least, points = BOUNDS[one.name]
        how = f"best of {one.reached:,} steps: step {one.step:,}{one.changed}"
        if one.training.steps is not None and one.reached < one.training.steps:
            how += f"; unfinished, {one.training.steps:,} steps are planned"
        cpu = None if one.spent is None else one.spent.seconds
        bleu = f"beam {_BEAM}: {one.beam['bleu']:.2f}; exact: {one.greedy['exact']:.1f} %"
        named = f"captions of digit scenes, {one.name}"
        rows.append(Row(named, one.greedy["bleu"], "BLEU-4", Bound("least", least), how, cpu, 2, bleu))
        place, beside = one.greedy["pointing"], ""
        if "pointing_drawn" in one.greedy:
            place, beside = one.greedy["pointing_drawn"], f"the likeliest place: {place:.1f} %"
        what = "the drawn place" if beside else "the peak"
        rows.append(Row(f"{named}: {what} lies on the digit", place, "%", Bound("least", points), how, None, 1, beside))
    said = (
        f"{count:,} scenes of one to three digits; their arrangements and digit images are not in the training data. "
        "Captions are decoded greedily; BLEU is sacrebleu's against all correct sentences. *Pointing* is the share of "
        "the words that name a digit whose attention is on a patch with its centre within the 8 × 8 pixels of that "
        "digit; a word for a digit that is not in the scene is a miss."
    )
    pictures = [
        Picture(f"caption-{one.name}.png", f"The caption of a test scene, {one.name} attention") for one in found
    ]
    commands = ["python -m benchmarks.vision.caption --runs runs/vision"]
    settings = {str(one.name): {"task": one.task.to_json(), "training": vars(one.training)} for one in found}
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
    """The first test scene of three digits whose caption is right, word by word."""
    test, (captioner, *_) = one.test, loaded(run)
    right = [n for n in range(len(test)) if one.said[n].text in test.captions[n]] or [0]
    n = max(right[:100], key=lambda n: sum(word.strip(",") in NAMES for word in one.said[n].text.split()))
    pixels = np.array(test.pixels[n])
    with record(captioner.model) as recording:
        (aligned,) = captioner.align(pixels[None], [one.said[n]])
    recording = recording.with_labels([token.removeprefix("▁") for token in aligned.target], [])
    path = folder / f"caption-{one.name}.png"
    draw_recording(recording, path, what="captions", image=torch.from_numpy(pixels))
    # in few colours, to keep it small
    with Image.open(path) as image:
        image.convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    return path


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
