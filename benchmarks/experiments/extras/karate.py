"""Graph attention on the karate club beside a mean over neighbours, by `examples/karate_club.py`."""

import runpy
import statistics
import time
from pathlib import Path

import torch

from benchmarks.experiments.experiment import Inputs
from benchmarks.result import ROOT, Row, Table
from benchmarks.training import Say

SEEDS = 10


def compare(inputs: Inputs, runs: Path, say: Say) -> tuple[list[Row], list[Table]]:
    """The accuracy on the members whose faction is not known, by score of the network."""
    torch.set_num_threads(1)
    example = runpy.run_path(str(ROOT / "examples" / "karate_club.py"))
    seeds, steps = inputs.changes.get("seeds", SEEDS), inputs.changes.get("steps", 200)
    rows, lines = [], []
    for score in example["SCORES"]:
        started = time.process_time()
        networks = [example["train"](score, seed, steps) for seed in range(seeds)]
        seconds = (time.process_time() - started) / seeds
        scores = [example["accuracy"](network) for network in networks]
        parameters = sum(parameter.numel() for parameter in networks[0].parameters())
        how = f"{parameters:,} parameters; mean of {seeds} seeds, {steps} steps"
        beside = f"{min(scores):.1f} to {max(scores):.1f}"
        rows.append(
            Row(f"karate club, {score}", statistics.mean(scores), "% of members", None, how, seconds, beside=beside)
        )
        lines.append([score, ", ".join(f"{each:.1f}" for each in scores)])
        say(f"{score}: {statistics.mean(scores):.2f}, {beside}")
    return rows, [Table("Seed by seed", ["network", "accuracy, %"], lines)]
