"""Moving digits and patterns in noise, by classify-clip: `python -m benchmarks.vision.clips --runs FOLDER`.

The trainings are those of `regard train classify-clip --data … --steps …`, with the options that are the defaults, one
after the other in this process. The seed also draws the clips and splits the images of the digits.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.report import IMAGES
from benchmarks.vision.result import RESULTS, Picture, Result, Row, Table
from regard.experiments.comparison import student
from regard.inference.predictor import labelled_recording
from regard.tasks.classify_clip.data import read_splits
from regard.tasks.classify_clip.options import ClassifyClip, EvaluateClips
from regard.tasks.classify_clip.predictor import ClipClassifier, ClipInput
from regard.tasks.loading import load
from regard.training.config import TrainingConfig

SEEDS = 3
# clips whose answers are compared alone, in a batch, and while they grow
_COMPARED = 24
_LONG = {"directions": 400, "meetings": 400, "signals": 600}

# the data set, the clip that is drawn, and its description
PICTURES = (
    ("meetings", "test:1", "Two digits that are lit in turn, the attention to frames, and to the places of each"),
    ("signals", "test:3", "A signal with a tone and a louder decoy, and the attention to its samples"),
)

SAID = """\
Embedded data: 6,000 clips of moving digits, or 4,000 signals, to train on and 1,000 to test; each seed draws others. No
single frame shows the class, which the accuracy of a network that sees one frame confirms. Validation clips select the
best weights. Learning rate, width and window of the default model were set after first results on validation clips of
seed 0; the other models have the same training. All trainings run on one thread.
"""


@dataclass(frozen=True)
class Variant:
    """A model on a data set, and its seeds."""

    title: str
    data: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1

    @property
    def name(self) -> str:
        typed = (option if value is True else f"{option}-{value}" for option, value in self.options.items())
        return "-".join([self.data, *typed])

    def task(self, seed: int, **sizes: Any) -> ClassifyClip:
        return ClassifyClip.of(data=self.data, seed=seed, **{**self.options, **sizes})


def variants(seeds: int) -> list[Variant]:
    """The default model on every set with several seeds, and the others beside it."""
    models = {"convnet": "3-D or 1-D network", "cell": "gated cell", "transformer": "space-time Transformer"}
    return [
        Variant("attention to frames", "directions", seeds=seeds),
        Variant("attention to frames", "meetings", seeds=seeds),
        Variant("attention to samples", "signals", seeds=seeds),
        Variant("attention to samples, sparsemax", "signals", {"attention": "sparsemax"}, seeds),
        Variant("attention to frames, causal", "directions", {"causal": True}),
        *(Variant(title, "directions", {"model": model}) for model, title in models.items()),
        *(Variant(title, "signals", {"model": model}) for model, title in models.items()),
        Variant("attention to frames, one at a time", "directions", {"window": 1}),
    ]


@dataclass(frozen=True)
class Judged:
    """The scores of one variant on its test clips, seed by seed."""

    variant: Variant
    accuracies: list[float]  # in percent
    baselines: list[float]  # of a network that sees one frame
    evidence: list[float]  # the share of the attention on the interval, in percent; empty if there is none
    parameters: int
    cpu: float  # CPU seconds of all trainings
    batch: float  # the largest difference of a probability in a batch from the clip alone
    growing: float | None  # of the growing clip from the whole; None unless the model is causal


def judged(variant: Variant, out: Path, training: TrainingConfig, sizes: Mapping[str, Any], say: Say) -> Judged:
    """Trains with every seed, unless already trained, and evaluates on the test clips."""
    scores, cpu = [], 0.0
    for seed in range(variant.seeds):
        task, run = variant.task(seed, **sizes), out / f"{variant.name}-{seed}"
        started, _ = train(run.name, task, training, run, say)
        predictor = load(run, device="cpu")
        assert isinstance(predictor, ClipClassifier)
        evaluation = task.load().evaluate(predictor, run, EvaluateClips(), lambda done, count: None)
        scores.append((evaluation.scores, evaluation.facts["baseline"]["accuracy"]))
        spent = Spent.of(run)
        cpu += 0.0 if spent is None else spent.seconds
        say(f"{run.name}: {', '.join(f'{name} {value:.2f}' for name, value in evaluation.scores.items())}")
    return Judged(
        variant,
        [each["accuracy"] for each, _ in scores],
        [baseline for _, baseline in scores],
        [each["evidence"] for each, _ in scores if "evidence" in each],
        started.parameters,
        cpu,
        *_differences(predictor, task),
    )


@torch.no_grad()
def _differences(predictor: ClipClassifier, task: ClassifyClip) -> tuple[float, float | None]:
    """The largest difference of a probability: in a batch from alone, and of a growing clip from the whole."""
    clips = [ClipInput(clip) for clip in read_splits(task).test.clips[:_COMPARED]]
    together = predictor.model(*predictor.tensors(clips)).softmax(-1)
    alone = torch.cat([predictor.model(*predictor.tensors([clip])) for clip in clips]).softmax(-1)
    in_batch = float((together - alone).abs().max())
    if not predictor.model.causal:
        return in_batch, None
    largest = 0.0
    for clip in clips:
        x, _ = predictor.tensors([clip])
        growing = predictor.model.growing(x).softmax(-1)
        parts = torch.cat([predictor.model(x[:, :end]) for end in range(1, x.shape[1] + 1)]).softmax(-1)
        largest = max(largest, float((growing - parts).abs().max()))
    return in_batch, largest


def _spread(values: Sequence[float]) -> str:
    """The 95 % interval of the mean, and the seeds."""
    n = len(values)
    half = f"95 % interval ± {student(n) * statistics.stdev(values) / n**0.5:.2f}, " if n > 1 else ""
    return f"{half}seeds: {', '.join(f'{value:.2f}' for value in values)}"


def rows(found: Sequence[Judged]) -> list[Row]:
    """The values that have a bound."""
    by_name = {each.variant.name: each for each in found}
    made = []
    for name, what in (("directions", "direction"), ("meetings", "meeting of two")):
        if (each := by_name.get(name)) is not None:
            made.append(
                Row(
                    f"moving digits, {what}",
                    statistics.mean(each.accuracies),
                    "% of test clips",
                    Bound("least", 97),
                    f"{each.parameters:,} parameters, {_LONG[each.variant.data]} steps of 32 clips; a single frame: "
                    f"{statistics.mean(each.baselines):.2f} %",
                    each.cpu / len(each.accuracies),
                    beside=_spread(each.accuracies),
                )
            )
    for name, what in (("signals", "softmax"), ("signals-attention-sparsemax", "sparsemax")):
        if (each := by_name.get(name)) is not None:
            made.append(
                Row(
                    f"pattern in noise, share of the attention on its interval, {what}",
                    statistics.mean(each.evidence),
                    "%",
                    Bound("least", 80),
                    f"accuracy {statistics.mean(each.accuracies):.2f} %; a single sample: "
                    f"{statistics.mean(each.baselines):.2f} %",
                    each.cpu / len(each.accuracies),
                    beside=_spread(each.evidence),
                )
            )
    made.append(
        Row("a clip in a batch, from the clip alone", max(each.batch for each in found), "", Bound("most", 1e-5),
            f"largest difference of a probability, {_COMPARED} test clips of every model below", digits=8)
    )  # fmt: skip
    if causal := [each.growing for each in found if each.growing is not None]:
        made.append(
            Row("causal: the growing clip, from the whole", max(causal), "", Bound("most", 1e-5),
                f"largest difference of a probability after any frame, {_COMPARED} test clips", digits=8)
        )  # fmt: skip
    return made


def result(found: Sequence[Judged], training: TrainingConfig, pictures: Sequence[Picture] = ()) -> Result:
    lines = [
        [
            each.variant.data,
            each.variant.title,
            f"{statistics.mean(each.accuracies):.2f}",
            f"{statistics.mean(each.baselines):.2f}",
            f"{statistics.mean(each.evidence):.1f}" if each.evidence else "",
            f"{each.parameters:,}",
            f"{each.cpu / 60 / len(each.accuracies):.1f}",
            str(len(each.accuracies)),
        ]
        for each in found
    ]
    table = Table(
        "Every model at the same number of steps",
        ["data", "model", "test accuracy, %", "single frame, %", "evidence, %", "parameters", "CPU minutes", "seeds"],
        lines,
        f"Steps: {', '.join(f'{data} {steps}' for data, steps in _LONG.items())}. Evidence is the share of the "
        "attention over time that is on the frames of the meeting, or on the samples of the pattern. CPU minutes are "
        "those of one training. With one frame at a time the model is a bag of frames, to which all directions look "
        "alike.",
    )
    settings = {
        "training": asdict(training),
        "tasks": {each.variant.name: each.variant.task(0).to_json() for each in found},
        "accuracies": {each.variant.name: each.accuracies for each in found},
        "evidence": {each.variant.name: each.evidence for each in found},
    }
    command = "python -m benchmarks.vision.clips --runs runs"
    title, made = "Clips and signals", rows(found)
    return Result("clips", title, SAID, made, [table], pictures, commands=[command], settings=settings)


def draw(out: Path, images: Path) -> list[Picture]:
    """The attention of the first runs on one of their test clips each, in docs/images."""
    drawn = []
    for data, clip, said in PICTURES:
        run, path = out / f"{data}-0", images / f"clips-{data.removesuffix('s')}.png"
        predictor = load(run, device="cpu")
        given = predictor.read(clip)
        output, recording = labelled_recording(predictor, given)
        predictor.draw(recording, given, output, path)
        drawn.append(Picture(path.name, said))
    return drawn


def training_of(data: str) -> TrainingConfig:
    """The defaults of the task, with steps for its end."""
    defaults = {**ClassifyClip.training, "validate_every": 200, "log_every": 200}
    return TrainingConfig(steps=_LONG[data], threads=1, device="cpu", **defaults)


def main(
    arguments: Sequence[str] | None = None,
    *,
    steps: int | None = None,
    sizes: Mapping[str, Any] | None = None,
    seeds: int = SEEDS,
    results: Path = RESULTS,
    images: Path = IMAGES,
) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.clips", description=__doc__)
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    made.add_argument("--only", nargs="*", metavar="NAME", help="only these variants; the result then has only these")
    given = made.parse_args(arguments)
    torch.set_num_threads(1)
    found: list[Judged] = []
    try:
        for variant in variants(seeds):
            if given.only is not None and variant.name not in given.only:
                continue
            training = training_of(variant.data)
            training = training if steps is None else replace(training, steps=steps, warmup=1)
            found.append(
                judged(variant, given.runs / "clips", training, sizes or {}, lambda text: print(text, flush=True))
            )
            # after every variant, so that an interruption loses no result
            path = result(found, training).write(results)
        if given.only is None:
            path = result(found, training, draw(given.runs / "clips", images)).write(results)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
