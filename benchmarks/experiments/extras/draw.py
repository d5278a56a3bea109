"""DRAW with and without attention, and plain variational autoencoders, by `examples/draw_digits.py`."""

import runpy
import statistics
import time
from pathlib import Path

import torch

from benchmarks.experiments.experiment import Inputs
from benchmarks.result import ROOT, Row, Table
from benchmarks.training import Say

SEEDS, STEPS = 3, 600
# draws of the noise per image of the test
DRAWS = 20


def compare(inputs: Inputs, runs: Path, say: Say) -> tuple[list[Row], list[Table]]:
    """The bound on the test digits, by model."""
    torch.set_num_threads(1)
    example = runpy.run_path(str(ROOT / "examples" / "draw_digits.py"))
    seeds, steps = inputs.changes.get("seeds", SEEDS), inputs.changes.get("steps", STEPS)
    test = example["binary_digits"]("test")
    rows, lines = [], []
    for variant in example["VARIANTS"]:
        started = time.process_time()
        models = [example["train"](variant, seed, steps) for seed in range(seeds)]
        seconds = (time.process_time() - started) / seeds
        scores = [example["bound"](model, test, DRAWS) for model in models]
        parameters = sum(parameter.numel() for parameter in models[0].parameters())
        how = f"{parameters:,} parameters; mean of {seeds} seeds, {steps} steps"
        beside = f"{min(scores):.2f} to {max(scores):.2f}"
        rows.append(Row(f"digits, {variant}", statistics.mean(scores), "nats", None, how, seconds, beside=beside))
        lines.append([variant, ", ".join(f"{each:.2f}" for each in scores)])
        say(f"{variant}: {statistics.mean(scores):.2f}, {beside}")
    return rows, [Table("Seed by seed", ["model", "bound, nats per image"], lines)]
