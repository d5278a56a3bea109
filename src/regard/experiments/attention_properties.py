"""The columns of `regard compare --properties`: diversity of heads and selectivity, on held-out inputs of a run."""

import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.inference.predictor import Predictor, predict_recorded
from regard.metrics.selectivity import selectivity
from regard.recording.analysis.diversity import diversity
from regard.recording.recorded_map import HARD, KINDS, RecordedMap
from regard.tasks.base import Task
from regard.tasks.loading import load_run
from regard.viz.recording.selection import is_channel_gate

# held-out inputs with known features that are recorded
_COUNT = 32


def attention_properties(run: Path) -> dict[str, float]:
    """The properties of the best weights of a run; empty for a model that attends to nothing."""
    loaded = load_run(run, "best", "cpu")
    try:
        loaded.predictor.check_attends("--properties")
    except ValueError:
        return {}
    return measured_properties(loaded.config.load(), loaded.predictor, run)


def measured_properties(task: Task[Any, Any], predictor: Predictor[Any, Any], run: Path) -> dict[str, float]:
    """Disagreement and effective number of the heads of all maps with several; on data that know the true features of
    an input, also the share of the weight on them and their share of all features, in percent.
    """
    columns: dict[str, list[float]] = {
        "heads disagree": [],
        "effective heads": [],
        "selectivity, %": [],
        "true features, %": [],
    }
    for example, truth in _inputs(task, predictor, run):
        _, recording = predict_recorded(predictor, [example])
        for recorded_map in recording:
            if KINDS[recorded_map.kind].has_entropy and len(recorded_map.shape) > 3 and recorded_map.shape[-3] > 1:
                heads = diversity(recorded_map)
                columns["heads disagree"].append(float(heads.disagreement.mean()))
                columns["effective heads"].append(float(heads.heads_rank.mean()))
            share = None if truth is None else _share(recorded_map, truth)
            if truth is not None and share is not None:
                columns["selectivity, %"].append(share)
                columns["true features, %"].append(100 * float(truth.double().mean()))
    return {name: statistics.mean(values) for name, values in columns.items() if values}


def _inputs(task: Task[Any, Any], predictor: Predictor[Any, Any], run: Path) -> list[tuple[Any, Tensor | None]]:
    """Held-out inputs with their true features; one without, where the data do not know these."""
    known: list[tuple[Any, Tensor | None]] = [
        (example, torch.as_tensor(truth)) for example, truth in task.known_features(predictor, _COUNT)
    ]
    if known:
        return known
    example = task.example(run)
    return [] if example is None else [(predictor.read(example), None)]


def _share(recorded_map: RecordedMap, truth: Tensor) -> float | None:  # bool "k" or "h w"
    """The mean selectivity of all rows, in percent; None for a map over something else than these features.

    Hard attention reads its greatest weight alone, and a gate of channels weighs all positions alike.
    """
    weights = recorded_map.weights.dense()
    if truth.ndim == 2 and is_channel_gate(recorded_map):
        weights = weights.expand(*weights.shape[:-1], truth.numel())
    elif weights.shape[-1] != truth.numel() or (truth.ndim == 2 and recorded_map.grid != tuple(truth.shape)):
        return None
    if recorded_map.captured_from == HARD:
        weights = torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
    return 100 * float(selectivity(weights, truth.flatten().expand_as(weights)).mean())
