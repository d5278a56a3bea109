"""Agents: the returns that a Decision Transformer obtains when asked, and the speed of games."""

import itertools
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.experiments.experiment import Inputs
from benchmarks.experiments.runner import TrainedRun
from benchmarks.result import Row, Table
from benchmarks.table import Bound
from benchmarks.training import Say
from regard.tasks.agent.options import AgentConfig
from regard.training.config import TrainingConfig
from regard.training.events import StepLogged
from regard.training.fit import fit

MEMORIES = ("additive", "dot", "gtrxl", "lstm", "gru", "none")
SEGMENTS = 30


def asked(run: TrainedRun) -> dict[str, float]:
    """The greatest distance of a mean return from the one that was asked for."""
    return {"distance": max(abs(value - float(want)) for want, value in run.values["asked"].items())}


def speed(inputs: Inputs, runs: Path, say: Say) -> tuple[list[Row], list[Table]]:
    """Moves of all games per second of CPU time, played and learned from."""
    torch.set_num_threads(1)
    rows = []
    for memory in MEMORIES:
        options = {"env": "pairs", "memory": memory, **inputs.changes}
        segments = int(options.pop("segments", SEGMENTS))
        config = AgentConfig.of(**options)
        updates = config.passes * config.minibatches
        never = 10**6
        steps = {"steps": segments * updates, "log_every": updates, "save_every": never, "validate_every": never}
        training = TrainingConfig(**{**AgentConfig.training, "threads": 1, "device": "cpu", **steps})
        with tempfile.TemporaryDirectory() as folder:
            events = fit(config, Path(folder) / "run", training)
            times = [time.process_time() for event in events if isinstance(event, StepLogged)]
        seconds = statistics.median(b - a for a, b in itertools.pairwise(times))
        rate = config.batch * config.segment / seconds
        say(f"{memory}: {rate:,.0f} moves per second")
        how = f"pairs, width {config.model.width}, {config.batch} games, {config.passes} passes"
        bound = Bound("least", 10_000) if memory == "additive" else None
        how += f", median of {len(times) - 1} segments"
        rows.append(Row(f"speed, {memory}", rate, "moves per second of CPU", bound, how, digits=0))
    return rows, []
