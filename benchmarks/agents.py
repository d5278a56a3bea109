"""Agents: `python -m benchmarks.agents --part memories|tmaze|target|message|arm|decision|minigrid|speed`.

memories: pairs and repeat, a minute of CPU per training at most; a training ends at the first validation that reaches
the goal. tmaze: success in a corridor of 5. target: return and attention to the target, soft and hard. message: two
players with and without messages. arm: success and attention to the named object. decision: the returns that a Decision
Transformer obtains when it is asked for them. minigrid: success in a maze of MiniGrid, which must be installed. speed:
moves of all games per second of CPU, played and learned from. Every training is scored on 500 held-out episodes.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.measured import About
from benchmarks.table import Bound
from benchmarks.training import Say
from benchmarks.vision.result import ROOT, Result, Row
from regard.tasks.agent.options import AgentConfig, EvaluateAgent
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig
from regard.training.events import StepLogged, Validated
from regard.training.fit import fit

RESULTS = ROOT / "benchmarks" / "results" / "agents"
ATTENTION = ("additive", "dot", "gtrxl")
MEMORIES = (*ATTENTION, "lstm", "gru", "none")
# more steps than any budget allows
ENDLESS = 10**6
# options of the mazes of MiniGrid
MAZE = {"memory": "dot", "window": 16, "batch": 128, "entropy": 0.02, "valid_episodes": 100}


@dataclass(frozen=True)
class Trained:
    """A training that ended at its goal or at the end of its budget, and the scores of its best weights."""

    seed: int
    seconds: float  # of CPU
    steps: int  # updates
    reached: bool
    scores: dict[str, float]
    facts: dict[str, Any]


def train(task: AgentConfig, metric: str, goal: float, seconds: float, episodes: int, **training: Any) -> Trained:
    """Trains until a validation reaches the goal, at most for these seconds of CPU."""
    options = {**AgentConfig.training, "steps": ENDLESS, "threads": 1, "device": "cpu", **training}
    reached, step = False, 0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start = time.process_time()
        for event in fit(task, run, TrainingConfig(**options)):
            spent = time.process_time() - start
            if isinstance(event, Validated):
                step, value = event.step, event.score.values[metric]
                reached = value >= goal if AgentConfig.metrics[metric] else value <= goal
            if isinstance(event, Validated | StepLogged) and (reached or (spent > seconds and step)):
                break
        loaded = load_run(run, device="cpu")
        found = task.load().evaluate(loaded.predictor, run, EvaluateAgent(episodes), lambda done, count: None)
    return Trained(task.seed, spent, step, reached, dict(found.scores), dict(found.facts))


def row(what: str, metric: str, found: Sequence[Trained], bound: Bound | None, how: str) -> Row:
    values = [each.scores[metric] for each in found]
    times = [each.seconds for each in found]
    ended = f"{sum(each.reached for each in found)} of {len(found)} ended at the goal"
    beside = f"{min(values):.3f} to {max(values):.3f}; {ended}, after {min(times):.0f} to {max(times):.0f} s of CPU"
    beside += (
        f"; random actions {statistics.mean(each.facts['random'] for each in found):.2f}" if metric == "return" else ""
    )
    return Row(what, statistics.mean(values), metric, bound, how, statistics.mean(times), digits=3, beside=beside)


def memories(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    rows = []
    for env in given.envs:
        for memory in given.memories:
            found = []
            for seed in range(given.seeds):
                task = AgentConfig.of(env=env, memory=memory, seed=seed, **small)
                found.append(
                    train(
                        task, "return", 0.97, given.seconds, given.episodes, validate_every=given.validate_every or 24
                    )
                )
                say(f"{env} {memory} {found[-1]}")
            bound = Bound("least", 0.95) if memory in ATTENTION else None
            how = f"{given.seconds:g} s of CPU at most, {given.seeds} seeds, one thread"
            rows.append(row(f"{env}, {memory}", "return", found, bound, how))
    return rows


def maze(
    name: str, given: argparse.Namespace, say: Say, where: str, *, memory: str, env: str, **options: Any
) -> list[Row]:
    """Trains seed after seed in a maze; the row with the bound counts those that are successful."""
    found = []
    for seed in range(given.seeds):
        task = AgentConfig.of(env=env, memory=memory, seed=seed, **options)
        found.append(
            train(task, "success", 0.97, given.seconds, given.episodes, validate_every=given.validate_every or 120)
        )
        say(f"{name} {found[-1]}")
    solved = sum(each.scores["success"] >= 0.9 for each in found)
    how = f"{where}, {memory} memory, {given.seconds:g} s of CPU at most, one thread"
    return [
        Row(f"{name}, seeds with success of 0.9", solved, f"of {len(found)}", Bound("least", 2), how, digits=0),
        row(f"{name}, success", "success", found, None, how),
    ]


def tmaze(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    where = f"corridor of {given.length}, view of 3 × 3"
    return maze("T-maze", given, say, where, memory="additive", env="tmaze", length=given.length, **small)


def minigrid(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    return maze("MiniGrid", given, say, f"{given.gym}, view of 3 × 3", env=given.gym, **{**MAZE, **small})


def target(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    rows = []
    for places in ("soft", "hard"):
        found = []
        for seed in range(given.seeds):
            task = AgentConfig.of(env="target", memory="lstm", places=places, seed=seed, **small)
            found.append(
                train(task, "return", 0.97, given.seconds, given.episodes, validate_every=given.validate_every or 60)
            )
            say(f"target {places} {found[-1]}")
        how = f"LSTM, {given.seconds:g} s of CPU at most, {given.seeds} seeds, one thread"
        rows.append(row(f"target, {places}, return", "return", found, Bound("least", 0.9), how))
        rows.append(
            row(f"target, {places}, greatest weight on the target", "pointing", found, Bound("least", 0.8), how)
        )
        rows.append(row(f"target, {places}, mean weight of the target", "on target", found, None, how))
    return rows


def message(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    rows = []
    how = f"2 of 4 keys, {given.seconds:g} s of CPU at most, {given.seeds} seeds, one thread"
    for memory, bound in (("message", Bound("least", 0.95)), ("none", None)):
        found = []
        for seed in range(given.seeds):
            task = AgentConfig.of(env="message", memory=memory, seed=seed, **small)
            every = given.validate_every or 60
            found.append(train(task, "return", 0.99, given.seconds, given.episodes, validate_every=every, lr=2e-3))
            say(f"message {memory} {found[-1]}")
        rows.append(row(f"message, memory {memory}", "return", found, bound, how))
        if memory == "message":
            silent = [each.facts["silent"] for each in found]
            beside = f"{min(silent):.3f} to {max(silent):.3f}"
            mean = statistics.mean(silent)
            rows.append(Row("message, the same with all bits at 0", mean, "return", None, how, digits=3, beside=beside))
    return rows


def arm(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    found = []
    for seed in range(given.seeds):
        task = AgentConfig.of(env="arm", seed=seed, **small)
        every = given.validate_every or 400
        found.append(train(task, "on target", 0.85, given.seconds, given.episodes, validate_every=every, lr=2e-3))
        say(f"arm {found[-1]}")
    how = f"4 objects, Gaussian policy, {given.seconds:g} s of CPU at most, {given.seeds} seeds, one thread"
    return [
        row("arm, success", "success", found, Bound("least", 0.9), how),
        row("arm, greatest weight on the named object", "pointing", found, Bound("least", 0.8), how),
        row("arm, mean weight of the named object", "on target", found, Bound("least", 0.8), how),
        row("arm, return", "return", found, None, how),
    ]


def decision(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    """The worst distance of a mean return from the one that was asked for is bounded."""
    found = []
    sizes = {"pairs": given.pairs, "recorded": 8000, "batch": 128, **small}
    for seed in range(given.seeds):
        task = AgentConfig.of(env="pairs", memory="decision-transformer", seed=seed, **sizes)
        every = given.validate_every or 200
        found.append(train(task, "gap", 0.02, given.seconds, given.episodes, validate_every=every, lr=2e-3))
        say(f"decision {found[-1]}")
    how = (
        f"{given.pairs} pairs, {sizes['recorded']:,} recorded episodes, {given.seconds:g} s of CPU at most, one thread"
    )
    rows = [row("Decision Transformer, distance per episode", "gap", found, None, how)]
    for asked in found[0].facts["asked"]:
        obtained = [each.facts["asked"][asked] for each in found]
        worst = max(abs(value - float(asked)) for value in obtained)
        beside = f"obtained {min(obtained):.3f} to {max(obtained):.3f}"
        what = f"Decision Transformer, asked for {asked}"
        rows.append(Row(what, worst, "greatest distance", Bound("most", 0.1), how, digits=3, beside=beside))
    return rows


def speed(given: argparse.Namespace, say: Say, **small: Any) -> list[Row]:
    """Between the first and the last of some segments."""
    rows = []
    for memory in given.memories:
        task = AgentConfig.of(env="pairs", memory=memory, **small)
        updates = task.passes * task.minibatches
        options = {**AgentConfig.training, "threads": 1, "device": "cpu", "log_every": updates, "save_every": ENDLESS}
        options |= {"steps": given.segments * updates, "validate_every": ENDLESS}
        times = []
        with tempfile.TemporaryDirectory() as folder:
            for event in fit(task, Path(folder) / "run", TrainingConfig(**options)):
                if isinstance(event, StepLogged):
                    times.append(time.process_time())
        per_segment = statistics.median(b - a for a, b in itertools.pairwise(times))
        rate = task.batch * task.segment / per_segment
        say(f"{memory}: {rate:,.0f} moves per second")
        how = f"pairs, width {task.model.width}, {task.batch} games, {task.passes} passes, median of {len(times) - 1} "
        bound = Bound("least", 10_000) if memory == "additive" else None
        rows.append(Row(f"speed, {memory}", rate, "moves per second of CPU", bound, how + "segments", digits=0))
    return rows


PARTS = {
    "memories": memories,
    "tmaze": tmaze,
    "target": target,
    "message": message,
    "arm": arm,
    "decision": decision,
    "minigrid": minigrid,
    "speed": speed,
}
SECONDS = {
    "memories": 60.0,
    "tmaze": 600.0,
    "target": 240.0,
    "message": 60.0,
    "arm": 120.0,
    "decision": 180.0,
    "minigrid": 1500.0,
    "speed": 0.0,
}
SAID = "Agents with a memory; returns, successes and pointing on held-out episodes.\n"


def command_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    """The command with all options that are not at their defaults."""
    words = [parser.prog]
    for name, value in vars(given).items():
        if value != parser.get_default(name):
            words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return " ".join(words)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **small: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents", description=__doc__)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--envs", nargs="+", default=["pairs", "repeat"], help="of memories (pairs repeat)")
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES), help="of memories and speed (all)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings per row (%(default)s)")
    parser.add_argument("--seconds", type=float, help="CPU seconds per training (60 to 1500, by the part)")
    parser.add_argument("--validate-every", type=int, help="updates between validations (24 to 400, by the part)")
    parser.add_argument("--length", type=int, default=5, help="the corridor of the T-maze (%(default)s)")
    parser.add_argument(
        "--gym", default="gym:benchmarks.minigrid_views:MemoryS7View3-v0", help="of minigrid (%(default)s)"
    )
    parser.add_argument("--pairs", type=int, default=4, help="of decision (%(default)s)")
    parser.add_argument("--segments", type=int, default=30, help="of speed (%(default)s)")
    parser.add_argument("--episodes", type=int, default=500, help="held-out episodes (%(default)s)")
    given = parser.parse_args(arguments)
    command = command_of(parser, given)
    given.seconds = SECONDS[given.part] if given.seconds is None else given.seconds
    torch.set_num_threads(1)
    rows = PARTS[given.part](given, lambda text: print(text, flush=True), **small)
    for each in rows:
        print(" | ".join(each.cells()), flush=True)
    name = given.part if given.envs == ["pairs", "repeat"] else f"{given.part}-{'-'.join(given.envs)}"
    settings = {key: value for key, value in vars(given).items() if key != "part"}
    result = Result(name, f"Agents, {given.part}", SAID, rows, commands=[command], settings=settings, about=About.now())
    print("written:", result.write(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
