"""The attention module and what a copied tutorial prints of it, on the embedded digits."""

import runpy
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.experiments.experiment import Inputs
from benchmarks.result import ROOT, Row, Table
from benchmarks.training import Say
from regard.models.mlp import MLP

SEEDS, EPOCHS = 5, 30
GATES = {
    "perceptron alone": "none",
    "attention-module": "attention-module",
    "attention-module, update of the input": "attention-module:update=input",
    "attention-module, product of three scores": "attention-module:combine=product",
    "context-gating, the printed head": "context-gating",
}
PRINTED = "printed module, repaired"


def compare(inputs: Inputs, runs: Path, say: Say) -> tuple[list[Row], list[Table]]:
    """Test accuracy of a perceptron with each gate on its rows, and behind the printed module."""
    torch.set_num_threads(1)
    example = runpy.run_path(str(ROOT / "examples" / "attention_module.py"))
    seeds, epochs = inputs.changes.get("seeds", SEEDS), inputs.changes.get("epochs", EPOCHS)
    scores: dict[str, list[float]] = {}
    rows = []
    for name in (*GATES, PRINTED):
        started = time.process_time()
        scores[name] = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            model: Any = example["ModuleClassifier"]()
            if name != PRINTED:
                torch.manual_seed(seed)
                model = MLP(1, (8, 8), 10, gate=GATES[name], dropout=0.0)
            scores[name].append(example["train"](model, example["digits"](seed), epochs))
            say(f"{name}, seed {seed}: {scores[name][-1]:.2f}")
        seconds = (time.process_time() - started) / seeds
        parameters = sum(parameter.numel() for parameter in model.parameters())
        how = f"{parameters:,} parameters; mean of {seeds} seeds, {epochs} epochs"
        mean = sum(scores[name]) / seeds
        beside = f"{min(scores[name]):.2f} to {max(scores[name]):.2f}"
        rows.append(Row(f"digits, {name}", mean, "% of test images", None, how, seconds, beside=beside))
    lines = [[name, ", ".join(f"{score:.2f}" for score in each)] for name, each in scores.items()]
    return rows, [Table("Seed by seed", ["model", "test accuracy, %"], lines)]
