"""The trainings of a comparison, each in a process of its own, and what came out of them."""

import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.cli.main import say_error
from regard.cli.progress import clock, number
from regard.cli.train_runner import DIVERGED
from regard.common import atomic_files
from regard.tasks import registry
from regard.tasks.registry import Kind
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, METRICS, RECORD, RunRecord
from regard.training.runtime import peak_memory
from regard.viz.plots.curve import curve

_RESULTS, _TABLE, _CURVE = "results.json", "table.md", "curve.png"


def check(tasks: Mapping[str, Kind]) -> None:
    """Every one can be trained; told before anything is."""
    torch.set_num_threads(1)  # for so little; the trainings are processes of their own
    for name, task in tasks.items():
        try:
            task.rehearse()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} cannot be compared: {error}") from error


def run(name: str, verb: str, task: Kind, out: Path, config: Path) -> int:
    """Trains one, or goes on with it, or leaves it if it is done; the exit code."""
    found = _read(out)
    if found.get(name, {}).get("done"):
        print(f"regard: {name} is trained already", file=sys.stderr)
        return 0
    folder = out / name
    print(f"regard: {name}", file=sys.stderr, flush=True)
    if (folder / RECORD).exists():
        options = ["--resume", str(folder)]
    else:
        own = [*task.words(), "--seed", str(task.seed)]
        options = [verb, "--config", str(config), "--out", str(folder), *own]
    code = _process(["train", *options])
    told = {"done": code in (0, DIVERGED), "diverged": code == DIVERGED, "peak_bytes": peak_memory.read(folder)}
    atomic_files.write_atomically(out / _RESULTS, [json.dumps({**found, name: told}, indent=2).encode(), b"\n"])
    if code not in (0, DIVERGED, 130):
        say_error(f"the training of {name} failed with exit code {code}; what it said stands above")
        return 1
    return 0 if code == DIVERGED else code


def _process(args: list[str]) -> int:
    """The exit code of a command in a process of its own."""
    child = subprocess.Popen([sys.executable, "-m", "regard", *args], stdout=sys.stderr.fileno())
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            # A terminal has told the child as well, and a second SIGINT would not let it save.
            child.send_signal(signal.SIGTERM)
            return 130 if child.wait() else 0


def results(tasks: Mapping[str, Kind], out: Path, training: TrainingConfig) -> str:
    """The table; beside it the numbers in full, and the scores over time."""
    found, lines = _read(out), {}
    rows: list[dict[str, Any]] = []
    for name in found:
        if not found[name].get("done"):
            continue
        row, lines[name] = _row(name, found[name], out / name)
        rows.append(row)
    main = next(iter(tasks.values())).choice("metric")
    better = next(iter(tasks.values())).higher(main)
    rows.sort(key=lambda row: row["scores"].get(main, -np.inf if better else np.inf), reverse=better)
    atomic_files.write_atomically(
        out / _RESULTS, [json.dumps({row["name"]: row for row in rows}, indent=2).encode(), b"\n"]
    )
    table = _table(rows, main, next(iter(tasks.values())), training)
    atomic_files.write_atomically(out / _TABLE, [table.encode()])
    # of several seeds the first: more lines than names are no picture
    drawn = {name: points for name, points in reversed(lines.items()) if points}
    drawn = {name.partition("@")[0]: points for name, points in drawn.items()}
    told = [str(out / _TABLE), str(out / _RESULTS)]
    if drawn:
        told.append(str(curve(drawn, out / _CURVE, "minutes of training", main, floor=0.0)))
    return f"{table}\n{', '.join(told)}"


def _row(name: str, told: Mapping[str, Any], run: Path) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """What a run came to, and its scores over the minutes."""
    lines = [json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    scored = [line for line in lines if line["kind"] == "validation"]
    facts = checkpoint.read(run / BEST).facts if (run / BEST).exists() else {}
    record = RunRecord.read(run)
    model = registry.told(record.kind, record.task, run).fresh(run)
    minutes = np.interp(
        [line["step"] for line in scored],
        [0, *(line["step"] for line in steps)],
        [0, *(line["elapsed"] / 60 for line in steps)],
    )
    main = facts.get("main", "")
    row = {
        "name": name,
        **told,
        "scores": facts.get("score", {}),
        "step": facts.get("step"),
        "tokens_per_second": statistics.median(line["tokens_per_second"] for line in steps) if steps else None,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": steps[-1]["elapsed"] if steps else None,
        "steps": steps[-1]["step"] if steps else 0,
        "threads": record.threads,
    }
    points = [(x, line[main]) for x, line in zip(minutes.tolist(), scored, strict=True) if line[main] is not None]
    return row, points


# the half-width of a 95 % interval in standard errors, by how many values there are  (Student 1908)
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def student(count: int) -> float:
    """That of any number of values; beyond the table by the first terms in 1/ν of how t nears the normal's quantile."""
    if count in _STUDENT:
        return _STUDENT[count]
    z, free = 1.959964, count - 1
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)


def _together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of several seeds: means of scores with their intervals, the median rate, the highest peak."""
    if len(rows) == 1:
        one = dict(rows[0])
        return one | {"scores": {name: number(value) for name, value in one["scores"].items()}}
    scores: dict[str, str] = {}
    for name in rows[0]["scores"]:
        values = [row["scores"][name] for row in rows if name in row["scores"]]
        if len(values) > 1:
            half = student(len(values)) * statistics.stdev(values) / len(values) ** 0.5
            scores[name] = f"{number(statistics.mean(values))} ± {number(half)}"
    rates = [row["tokens_per_second"] for row in rows if row["tokens_per_second"]]
    return {
        **rows[0],
        "name": f"{rows[0]['name'].partition('@')[0]} ({len(rows)} seeds)",
        "scores": scores,
        "diverged": any(row["diverged"] for row in rows),
        "tokens_per_second": statistics.median(rates) if rates else None,
        "peak_bytes": max((row["peak_bytes"] or 0 for row in rows), default=0),
        "seconds": sum(row["seconds"] or 0 for row in rows),
    }


def _groups(rows: Sequence[dict[str, Any]], main: str, higher: bool) -> list[list[dict[str, Any]]]:
    """The runs of each name together, the best mean first. One that was trained alone is one of its seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["name"].partition("@")[0], []).append(row)
    several = {name: [row for row in group if "@" in row["name"]] or group for name, group in groups.items()}

    def mean(group: list[dict[str, Any]]) -> float:
        values = [row["scores"][main] for row in group if main in row["scores"]]
        worst = -np.inf if higher else np.inf
        return statistics.mean(values) if values else worst

    return sorted(several.values(), key=mean, reverse=higher)


def _table(rows: list[dict[str, Any]], main: str, task: Kind, training: TrainingConfig) -> str:
    rows = [_together(group) for group in _groups(rows, main, task.higher(main))]
    names = list(dict.fromkeys([main, *(score for row in rows for score in row["scores"])]))
    head = ["trained", *names, f"{task.COUNTED}/s", "parameters", "peak memory", "time", "steps"]
    body = [
        [
            row["name"] + (" (diverged)" if row["diverged"] else ""),
            *(row["scores"].get(score, "–") for score in names),
            f"{row['tokens_per_second']:,.0f}" if row["tokens_per_second"] else "–",
            f"{row['parameters']:,}",
            f"{row['peak_bytes'] / 1e6:,.0f} MB" if row["peak_bytes"] else "–",
            clock(row["seconds"]) if row["seconds"] else "–",
            f"{row['steps']:,}",
        ]
        for row in rows
    ]
    wide = [max(len(line[n]) for line in [head, *body]) for n in range(len(head))]
    lines = [
        "| " + " | ".join(f"{cell:{'<' if n == 0 else '>'}{wide[n]}}" for n, cell in enumerate(line)) + " |"
        for line in [head, ["-" * wide[0], *("-" * (w - 1) + ":" for w in wide[1:])], *body]
    ]
    ends = {"steps": training.steps, "epochs": training.epochs, "minutes": training.minutes}
    budget = ", ".join(f"{value:g} {name}" for name, value in ends.items() if value is not None)
    return f"{task.title}, {budget} each; the best validation, by {main}.\n\n" + "\n".join(lines) + "\n"


def _read(out: Path) -> dict[str, Any]:
    path = out / _RESULTS
    if not path.exists():
        return {}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); remove it, and what it told is counted again") from error
    return told
