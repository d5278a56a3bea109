"""Curves of trainings on Multi30k, and the scores of mechanisms against their time."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.experiments.runner import TrainedRun
from benchmarks.training import cpu_by_step
from regard.training.run_folder import METRICS
from regard.viz.plots.curve import curve, scatter

Runs = Mapping[str, Sequence[TrainedRun]]
Points = list[tuple[float, float]]


def points(run: TrainedRun, kind: str, score: str) -> Points:
    """A number of metrics.jsonl, of steps or of validations, against CPU minutes."""
    lines = [json.loads(line) for line in (run.folder / METRICS).read_text(encoding="utf-8").splitlines()]
    at = cpu_by_step(run.folder)
    shown = [line for line in lines if line["kind"] == kind and line["step"] in at and score in line]
    return [(at[line["step"]] / 60, line[score]) for line in shown]


def draw_bleu(runs: Runs, path: Path) -> None:
    curves = {name: points(each[0], "validation", "bleu") for name, each in runs.items()}
    curve(curves, path, "CPU minutes", "BLEU, greedy, val")


def draw_loss(runs: Runs, path: Path) -> None:
    kinds = {"training": "step", "validation": "validation"}
    curves = {f"{name}, {what}": points(runs[name][0], kind, "nll") for name in runs for what, kind in kinds.items()}
    curve(curves, path, "CPU minutes", "−log p of a token")


def draw_mechanisms(runs: Runs, path: Path) -> None:
    places = {name: (each[0].values["cpu"] / 60, each[0].values["beam 5"]["bleu"]) for name, each in runs.items()}
    scatter(places, path, "CPU minutes", "BLEU, beam 5, val")
