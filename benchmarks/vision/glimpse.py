"""Glimpses on MNIST and on cluttered scenes: `python -m benchmarks.vision.glimpse --mnist FOLDER [NAME …]`.

Trains or resumes FOLDER/glimpse-NAME for every NAME: mnist, cluttered and crop. `--report` evaluates the existing runs,
at whatever step.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.crop import Crop
from benchmarks.vision.result import RESULTS, ROOT, Picture, Result, Row, Table
from regard.models.ram import RAM
from regard.recording.record import record
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.glimpse.task import path_probabilities, read_scenes, scene_stats
from regard.tasks.shared.image_data import class_probabilities, classification_scores, image_tensor, read_stats
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, LAST
from regard.viz.recording.figures import draw_recording

# sampled paths per image, which are averaged
DRAWS = 10
# a tenth of MNIST's 60,000 images is held out: 211 batches of 256, 422 of 128
_STEPS = {256: 211, 128: 422}
_SCENES = Glimpse.of(
    scene="cluttered",
    canvas=60,
    clutter=4,
    piece=8,
    glimpses=3,
    patch=8,
    scales=3,
    where=64,
    glimpse=128,
    hidden=128,
    batch=128,
)


@dataclass(frozen=True)
class Case:
    """A training on MNIST, or on scenes of it."""

    what: str
    how: str
    task: Glimpse | Crop
    epochs: int
    bound: Bound | None = None
    beside: str = ""
    lr: float = 1e-3

    @property
    def training(self) -> TrainingConfig:
        every = _STEPS[self.task.batch]
        return TrainingConfig(
            epochs=self.epochs,
            lr=self.lr,
            schedule="cosine",
            warmup=200,
            validate_every=5 * every,
            save_every=every,
            log_every=every,
            threads=1,
        )


CASES: dict[str, Case] = {
    "mnist": Case(
        "MNIST, RAM of 6 glimpses, ten paths together",
        "6 glimpses of 8 × 8, shifts of 1 pixel",
        Glimpse.of(glimpses=6, patch=8, scales=1, shift=1, batch=256),
        32,
        Bound("least", 98.0),
        "the paper: 98.71",
    ),
    "cluttered": Case("cluttered scenes, RAM", "3 glimpses of 8 × 8 in 3 scales: 576 numbers", _SCENES, 20, lr=2e-3),
    "crop": Case(
        "cluttered scenes, ConvNet on the middle",
        "a crop of 24 × 24: 576 numbers",
        Crop(scenes=_SCENES, side=24),
        20,
        lr=2e-3,
    ),
}
# the lead of RAM that must be reached, in points of accuracy
_AHEAD = 10.0

SAID = """\
RAM (Mnih et al. 2014) reads an image through a few glimpses and learns by REINFORCE where to look. Scenes are MNIST's
digits of 28 × 28, each at a random position on 60 × 60 black pixels, with four pieces of 8 × 8 cut out of other
digits; training scenes are composed anew in every epoch, test scenes are the same for all models. The ConvNet has as
many parameters as RAM, reads as many numbers and is trained on the same batches; the only difference is that it
cannot choose where to look. Each model is evaluated once on the 10,000 test images: RAM by the mean of ten sampled
paths, and by one path at the mean locations, with which the ConvNet is compared. Settings were chosen on the tenth of
the training images that was held out.
"""


@dataclass(frozen=True, eq=False)
class Judged:
    """The scores of the weights of a run on the test images."""

    row: Row
    scores: Mapping[str, float]
    means: float | None  # accuracy of the path at the mean locations
    alone: float | None  # accuracy of one sampled path
    parameters: int
    settings: Mapping[str, Any]


def weighed(task: Glimpse | Crop, run: Path) -> tuple[nn.Module, int]:
    """The model of a run with its last weights: the best ones, because the learning rate ends at 0."""
    model = task.load().predictor(run).model if isinstance(task, Glimpse) else task.load_model(run)
    facts = checkpoint.load(model, run / (LAST if (run / LAST).exists() else BEST))
    return model.eval(), int(facts["step"])


def judged(name: str, case: Case, run: Path, say: Say) -> Judged:
    """The accuracy of a run on the test images."""
    torch.manual_seed(0)
    model, step = weighed(case.task, run)
    scenes = case.task if isinstance(case.task, Glimpse) else case.task.scenes
    stats, test = scene_stats(scenes, read_stats(run)), read_scenes(scenes, "test")
    means = alone = None
    if isinstance(case.task, Glimpse):
        assert isinstance(model, RAM)
        first, *drawn = path_probabilities(model, test.pixels, stats, DRAWS)
        probabilities = np.mean(drawn, 0)
        means = classification_scores(first, test.labels)["accuracy"]
        alone = float(np.mean([classification_scores(path, test.labels)["accuracy"] for path in drawn]))
    else:
        probabilities = class_probabilities(model, model, case.task.cropped(test).pixels, stats)
    scores, spent = classification_scores(probabilities, test.labels), Spent.of(run)
    count = sum(p.numel() for p in model.parameters())
    row = Row(
        case.what,
        scores["accuracy"],
        f"% of {len(test):,} test images",
        case.bound,
        f"{case.how}; {count:,} parameters, {step / _STEPS[case.task.batch]:.0f} epochs, batches of {case.task.batch}",
        None if spent is None else spent.seconds,
        beside="; ".join(filter(None, [f"one path: {means:.2f}" if means is not None else "", case.beside])),
    )
    say(f"{name}: {' | '.join(row.cells())}")
    settings = {"task": _plain(case.task.to_json()), "training": asdict(case.training), "step": step, "scores": scores}
    return Judged(row, scores, means, alone, count, settings)


def _plain(task: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the name of the folder of images, without its path."""
    options = {name: _plain(value) if isinstance(value, dict) else value for name, value in task.items()}
    return options if options.get("train") is None else {**options, "train": Path(options["train"]).name}


def result(found: Mapping[str, Judged], note: str = "") -> Result:
    rows = [one.row for one in found.values()]
    if {"cluttered", "crop"} <= found.keys():
        # several paths read more pixels than the crop: only one path is comparable
        ahead = (found["cluttered"].means or 0.0) - found["crop"].row.value
        rows.append(Row("cluttered scenes, one path ahead of the ConvNet", ahead, "points", Bound("least", _AHEAD)))
    lines = [
        [one.row.what, f"{one.row.value:.2f}", f"{one.alone:.2f}", f"{one.means:.2f}", f"{one.scores['nll']:.4f}"]
        for one in found.values()
        if one.alone is not None and one.means is not None
    ]
    head = [
        "",
        f"{DRAWS} sampled paths, %",
        "one sampled path, %",
        "mean locations, %",
        f"−log p of {DRAWS} paths",
    ]
    return Result(
        "glimpse",
        "Glimpses",
        f"{SAID}{note}",
        rows,
        [Table("One path and several", head, lines)],
        [Picture("glimpses.png", "Paths of glimpses over test scenes")] if "cluttered" in found else [],
        ["python -m benchmarks.vision.glimpse --mnist FOLDER"],
        {name: one.settings for name, one in found.items()},
    )


# scenes side by side: the numbers of more could not be read on a page
_ACROSS = 2


def draw(task: Glimpse, run: Path, folder: Path, count: int = 4) -> Path:
    """Draws the paths over the first test scenes that are classified correctly."""
    model, _ = weighed(task, run)
    assert isinstance(model, RAM)
    stats, test = scene_stats(task, read_stats(run)), read_scenes(task, "test")[slice(0, 50)]
    right = np.flatnonzero(next(path_probabilities(model, test.pixels, stats)).argmax(-1) == test.labels)
    # one per digit
    first = {int(test.labels[n]): int(n) for n in right[::-1]}
    drawn = []
    for n in sorted(first.values())[:count]:
        x = image_tensor(test.pixels[n : n + 1], stats)
        with torch.no_grad(), record(model) as tape:
            model(x)
        path = draw_recording(tape, run / f"path-{n}.png", what="glimpses", image=torch.from_numpy(test.pixels[n]))
        with Image.open(path) as opened:
            drawn.append(opened.convert("RGB"))
        path.unlink()
    side, high = max(one.width for one in drawn), max(one.height for one in drawn)
    sheet = Image.new("RGB", (min(len(drawn), _ACROSS) * side, -(-len(drawn) // _ACROSS) * high), "white")
    for n, one in enumerate(drawn):
        sheet.paste(one, (n % _ACROSS * side, n // _ACROSS * high))
    sheet.quantize(64).save(folder / "glimpses.png", optimize=True)
    return folder / "glimpses.png"


def placed(case: Case, mnist: Path) -> Case:
    """The case with its files."""
    if isinstance(case.task, Glimpse):
        return replace(case, task=case.task.with_options(data=None, train=mnist))
    scenes = case.task.scenes.with_options(data=None, train=mnist)
    return replace(case, task=replace(case.task, scenes=scenes))


def main(arguments: Sequence[str] | None = None, cases: Mapping[str, Case] = CASES, results: Path = RESULTS) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.glimpse", description=__doc__)
    made.add_argument("names", nargs="*", help=f"of {', '.join(cases)}; if left out, all")
    made.add_argument("--mnist", type=Path, metavar="FOLDER", required=True, help="the four IDX files, plain or .gz")
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    made.add_argument("--report", action="store_true", help="evaluate the existing runs, without training")
    made.add_argument("--pictures", type=Path, metavar="FOLDER", default=ROOT / "docs" / "images")
    made.add_argument("--note", metavar="TEXT", default="", help="a note on these runs for the report")
    given = made.parse_args(arguments)
    if unknown := [name for name in given.names if name not in cases]:
        made.error(f"unknown {unknown[0]!r}; known are: {', '.join(cases)}")
    ready = {name: placed(case, given.mnist.absolute()) for name, case in cases.items()}
    try:
        for name in () if given.report else given.names or ready:
            train(name, ready[name].task, ready[name].training, given.runs / f"glimpse-{name}", say)
        there = [name for name in ready if (given.runs / f"glimpse-{name}" / BEST).exists()]
        found = {name: judged(name, ready[name], given.runs / f"glimpse-{name}", say) for name in there}
        task = ready["cluttered"].task
        if "cluttered" in found and isinstance(task, Glimpse):
            say(f"written: {draw(task, given.runs / 'glimpse-cluttered', given.pictures)}")
        say(f"written: {result(found, given.note).write(results)}")
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
