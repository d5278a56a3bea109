"""scikit-learn's digits by the same ConvNet with every gate: `python -m benchmarks.vision.digits --runs FOLDER`.

`regard compare` trains each with five seeds, which also part the images anew, a fifth of every class to be judged on.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.measured import write
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.vision.result import RESULTS, Result, Row, Table
from regard.cli import main as regard
from regard.cli.contest import student
from regard.cli.loading import recorded
from regard.gates.catalogue import GATES
from regard.tasks.classification import evaluate
from regard.tasks.classify_image import ClassifyImage
from regard.tasks.pictures import read, recalled
from regard.train import checkpoint
from regard.train.run import BEST

SEEDS = 5
# chosen on validation images
OPTIONS = {
    "width": "16",
    "epochs": "14",
    "lr": "6e-3",
    "schedule": "cosine",
    "warmup": "30",
    "weight-decay": "0.01",
    "validate-every": "98",
    "save-every": "294",
    "log-every": "98",
    "threads": "1",
}

SAID = """\
1,797 images of 8 × 8 pixels; a fifth of every class is held out to be judged on, anew for each of five seeds, and a
tenth of the rest chooses the best weights. Settings were chosen without a gate, on that tenth. One of 360 test images
is 0.28 %: where intervals overlap, the gates cannot be told apart by this.
"""


@dataclass(frozen=True)
class Judged:
    """A gate's networks on their test images."""

    gate: str
    accuracies: list[float]  # in percent, one a seed
    parameters: int
    peak: float  # bytes
    rate: float  # images a second of the processor

    @property
    def mean(self) -> float:
        return statistics.mean(self.accuracies)

    @property
    def half(self) -> float:
        """Of the 95 % interval of the mean."""
        n = len(self.accuracies)
        return student(n) * statistics.stdev(self.accuracies) / n**0.5 if n > 1 else float("nan")


@dataclass(frozen=True)
class Cpu:
    """As benchmarks.spent reads it."""

    seconds: float


def trained(names: Sequence[str], out: Path, seeds: int, options: dict[str, str]) -> int:
    """regard compare, its time counted over all calls."""
    typed = [word for name, value in options.items() for word in (f"--{name}", *value.split())]
    before, begun = Spent.of(out), resource.getrusage(resource.RUSAGE_CHILDREN)
    code = regard(
        ["compare", "classify-image", "--gate", ",".join(names), "--seeds", str(seeds), *typed, "--out", str(out)]
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    here = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
    if out.exists():
        write(out / "cpu.json", Cpu(here + (0.0 if before is None else before.seconds)))
    return code


def judged(name: str, out: Path, seeds: int) -> Judged:
    told: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    runs = [f"{name}@{seed}" if seeds > 1 else name for seed in range(seeds)]
    accuracies = []
    for run in runs:
        task = ClassifyImage.told(recorded(out / run).task)
        model, facts = task.fresh(out / run), recalled(out / run)
        checkpoint.load(model, out / run / BEST)
        accuracies.append(evaluate(model.eval(), read(task)[1], facts)["accuracy"])
    peaks = [told[run]["peak_bytes"] or 0.0 for run in runs]
    return Judged(name, accuracies, told[runs[0]]["parameters"], max(peaks), rate(task, out / runs[0]))


def rate(task: ClassifyImage, run: Path, repeats: int = 15) -> float:
    """Images that are learned from in a second of the processor: the best of some steps, on one thread."""
    work = task.prepare(run, new=False)
    model, batch = work.model().train(), work.batch(work.batches(0)[0], 0, 1)
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        work.loss(model, batch).total.backward()
        best = min(best, time.process_time() - begun)
    return len(batch.labels) / best


def result(found: Sequence[Judged], out: Path, options: dict[str, str]) -> Result:
    plain = next(one for one in found if one.gate == "none")
    spent = Spent.of(out)
    row = Row(
        "scikit-learn's digits, ConvNet without a gate",
        plain.mean,
        "% of test images",
        Bound("least", 98.5),
        f"{options['epochs']} epochs, {plain.parameters:,} parameters, mean of {len(plain.accuracies)} seeds",
        beside=f"95 % interval ± {plain.half:.2f}",
    )
    lines = [
        [
            one.gate,
            f"{one.mean:.2f} ± {one.half:.2f}",
            f"{min(one.accuracies):.2f} to {max(one.accuracies):.2f}",
            f"{one.parameters:,}",
            f"{one.rate:,.0f}",
            f"{one.peak / 1e6:,.0f} MB",
        ]
        for one in sorted(found, key=lambda one: -one.mean)
    ]
    minutes = "" if spent is None else f" All trainings together took {spent.seconds / 60:.0f} CPU minutes."
    table = Table(
        "Every gate at the same budget",
        ["gate", "test accuracy, %", "least to best seed", "parameters", "images/s", "peak memory"],
        lines,
        f"Means over {len(plain.accuracies)} seeds with 95 % intervals (Student's t). Images a second of the processor "
        f"are of training, forward and backward, on one thread; memory is the training process's.{minutes}",
    )
    settings = {"options": options, "accuracies": {one.gate: one.accuracies for one in found}}
    command = "python -m benchmarks.vision.digits --runs runs"
    return Result("digits", "Digits, gate by gate", SAID, [row], [table], commands=[command], settings=settings)


def main(
    arguments: Sequence[str] | None = None,
    *,
    names: Sequence[str] = ("none", *GATES),
    seeds: int = SEEDS,
    options: dict[str, str] = OPTIONS,
    results: Path = RESULTS,
) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.digits")
    made.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="where runs are kept")
    made.add_argument("--gates", nargs="*", choices=sorted(GATES), help="only these; more are added by another call")
    given = made.parse_args(arguments)
    out, names = given.runs / "digits", names if given.gates is None else ("none", *given.gates)
    if code := trained(names, out, seeds, options):
        return code
    torch.set_num_threads(1)
    found = [judged(name, out, seeds) for name in names]
    print(f"written: {result(found, out, options).write(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
