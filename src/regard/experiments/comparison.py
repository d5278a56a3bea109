"""The trainings of a comparison, each in a process of its own, and the table of their results."""

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

from regard.cli.main import print_error
from regard.common import atomic_files, json_files
from regard.common.wording import clock, number
from regard.experiments.attacked_images import robust_accuracy
from regard.experiments.attacked_texts import robust_text_accuracy
from regard.experiments.attention_properties import attention_properties
from regard.tasks.base import TaskConfig
from regard.tasks.registry import task_from_record
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, METRICS, RECORD, RunRecord
from regard.training.runtime import peak_memory
from regard.training.step import Diverged
from regard.viz.plots.curve import curve

_REFUSED = 2
_RESULTS, _TABLE, _CURVE = "results.json", "table.md", "curve.png"


def check(variants: Mapping[str, TaskConfig]) -> None:
    """Raises before any training if a variant cannot be trained."""
    torch.set_num_threads(1)  # a dry run is small, and each training is a process of its own
    for name, task in variants.items():
        try:
            task.load().check_options()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} cannot be compared: {error}") from error


def train(name: str, task: TaskConfig, out: Path, config: Path) -> int:
    """Trains a variant or resumes its training, unless it is finished; returns the exit code.

    `config` is the file with the options that all variants share; `task.cli_arguments()` selects the variant.
    """
    results = _read(out)
    if results.get(name, {}).get("done"):
        print(f"regard: {name} is trained already", file=sys.stderr)
        return 0
    folder = out / name
    print(f"regard: {name}", file=sys.stderr, flush=True)
    if (folder / RECORD).exists():
        trusted = [word for module in task.modules(task.to_json()) for word in ("--trust-module", module)]
        options = ["--resume", str(folder), *trusted]
    else:
        positions = getattr(task.model, "positions", None)
        variant = [*task.cli_arguments(), *(["--positions", positions] if positions else []), "--seed", str(task.seed)]
        options = [task.name, "--config", str(config), "--out", str(folder), *variant]
    code = _process(["train", *options])
    result = {
        "done": code in (0, Diverged.exit_code),
        "diverged": code == Diverged.exit_code,
        "peak_bytes": peak_memory.read(folder),
    }
    _write(out, {**results, name: result})
    # a training that refuses its input says why in a sentence of its own
    if code not in (0, Diverged.exit_code, _REFUSED, 130):
        print_error(f"the training of {name} failed with exit code {code}; its own error stands above")
        return 1
    return 0 if code == Diverged.exit_code else code


def _process(args: list[str]) -> int:
    """The exit code of a command in a process of its own."""
    # -P: no file of the working directory is imported instead of a library
    child = subprocess.Popen([sys.executable, "-P", "-m", "regard", *args], stdout=sys.stderr.fileno())
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            # A terminal sends Ctrl-C to the child as well, and a second SIGINT would not let it save.
            child.send_signal(signal.SIGTERM)
            return 130 if child.wait() else 0


def write_results(
    base: TaskConfig,
    out: Path,
    training: TrainingConfig,
    attack: str | None = None,
    eps: float | None = None,
    *,
    properties: bool = False,
) -> str:
    """Writes the table, all numbers as JSON and the scores over time; returns the table and the names of the files.

    `attack` is the name of an attack, `eps` its radius on images; the accuracy on test data becomes another score.
    With `properties` measures of the attention become scores.
    """
    results = _read(out)
    curves: dict[str, list[tuple[float, float]]] = {}
    rows: list[dict[str, Any]] = []
    for name, result in results.items():
        if result.get("done"):
            row, curves[name] = _row(name, result, out / name)
            row = row if attack is None else _attacked(row, out / name, attack, eps)
            rows.append(_with_properties(row, out / name) if properties else row)
    metric, higher = base.metric, base.metrics[base.metric]
    rows.sort(key=lambda row: row["scores"].get(metric, -np.inf if higher else np.inf), reverse=higher)
    _write(out, {row["name"]: row for row in rows})
    table = _table(rows, metric, base, training)
    atomic_files.write_atomically(out / _TABLE, [table.encode()])
    # only the first of several seeds: the figure has one line per variant
    drawn = {name.partition("@")[0]: points for name, points in reversed(curves.items()) if points}
    files = [str(out / _TABLE), str(out / _RESULTS)]
    if drawn:
        files.append(str(curve(drawn, out / _CURVE, "minutes of training", metric, floor=0.0)))
    return f"{table}\n{', '.join(files)}"


def _row(name: str, result: Mapping[str, Any], run: Path) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """The numbers of a run, and its validation scores over the minutes of training."""
    try:
        lines = [json_files.parse(line) for line in (run / METRICS).read_bytes().splitlines()]
    except ValueError as error:
        raise ValueError(f"{run / METRICS} cannot be read ({error}); remove {run}, and it is trained again") from error
    steps = [line for line in lines if line["kind"] == "step"]
    validations = [line for line in lines if line["kind"] == "validation"]
    facts = checkpoint.read(run / BEST).facts if (run / BEST).exists() else {}
    record = RunRecord.read(run)
    model = task_from_record(record, run).load().predictor(run).model
    minutes = np.interp(
        [line["step"] for line in validations],
        [0, *(line["step"] for line in steps)],
        [0, *(line["elapsed"] / 60 for line in steps)],
    )
    metric = facts.get("main", "")
    row = {
        "name": name,
        **result,
        "scores": facts.get("score", {}),
        "step": facts.get("step"),
        "tokens_per_second": statistics.median(line["tokens_per_second"] for line in steps) if steps else None,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": steps[-1]["elapsed"] if steps else None,
        "steps": steps[-1]["step"] if steps else 0,
        "threads": record.threads,
    }
    scores = [line.get(metric) for line in validations]
    points = [(x, score) for x, score in zip(minutes.tolist(), scores, strict=True) if score is not None]
    return row, points


def _attacked(row: dict[str, Any], run: Path, attack: str, eps: float | None) -> dict[str, Any]:
    """The row with the accuracy that an attack leaves of the test images or texts, if it applies to the model."""
    if not (run / BEST).exists():
        return row
    print(f"regard: {attack} on {run}", file=sys.stderr, flush=True)
    if eps is not None:
        return row | {"scores": {**row["scores"], f"{attack} {eps:g}, test": robust_accuracy(run, attack, eps)}}
    try:
        accuracy = robust_text_accuracy(run, attack)
    except ValueError as error:
        # a bag of words has no vectors: its row is without this number
        print(f"regard: {error}", file=sys.stderr, flush=True)
        return row
    return row | {"scores": {**row["scores"], f"{attack}, test": accuracy}}


def _with_properties(row: dict[str, Any], run: Path) -> dict[str, Any]:
    """The row with measures of the attention of the best weights."""
    if not (run / BEST).exists():
        return row
    return row | {"scores": {**row["scores"], **attention_properties(run)}}


# the half-width of a 95 % interval in standard errors, by the number of values  (Student 1908)
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def student(count: int) -> float:
    """The half-width for any number of values; beyond the table by the expansion of the t quantile in 1/ν."""
    if count in _STUDENT:
        return _STUDENT[count]
    z, freedom = 1.959964, count - 1
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _merge_seeds(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for several seeds: mean scores with their intervals, the median rate, the highest peak."""
    if len(rows) == 1:
        row = dict(rows[0])
        return row | {"scores": {name: number(value) for name, value in row["scores"].items()}}
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


def _groups(rows: Sequence[dict[str, Any]], metric: str, higher: bool) -> list[list[dict[str, Any]]]:
    """The runs of each variant, the best mean first; where a variant has runs NAME@SEED, a run NAME is left out."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["name"].partition("@")[0], []).append(row)
    seeds = {name: [row for row in group if "@" in row["name"]] or group for name, group in groups.items()}

    def mean(group: list[dict[str, Any]]) -> float:
        values = [row["scores"][metric] for row in group if metric in row["scores"]]
        worst = -np.inf if higher else np.inf
        return statistics.mean(values) if values else worst

    return sorted(seeds.values(), key=mean, reverse=higher)


def _table(rows: list[dict[str, Any]], metric: str, task: TaskConfig, training: TrainingConfig) -> str:
    rows = [_merge_seeds(group) for group in _groups(rows, metric, task.metrics[metric])]
    names = list(dict.fromkeys([metric, *(score for row in rows for score in row["scores"])]))
    head = ["trained", *names, f"{task.unit}/s", "parameters", "peak memory", "time", "steps"]
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
    widths = [max(len(line[n]) for line in [head, *body]) for n in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        "| " + " | ".join(f"{cell:{'<' if n == 0 else '>'}{widths[n]}}" for n, cell in enumerate(line)) + " |"
        for line in [head, rule, *body]
    ]
    ends = {"steps": training.steps, "epochs": training.epochs, "minutes": training.minutes}
    budget = ", ".join(f"{value:g} {name}" for name, value in ends.items() if value is not None)
    return f"{task.title}, {budget} each; the best validation, by {metric}.\n\n" + "\n".join(lines) + "\n"


def _read(out: Path) -> dict[str, Any]:
    path = out / _RESULTS
    if not path.exists():
        return {}
    try:
        results: dict[str, Any] = json_files.parse(path.read_bytes())
        if not isinstance(results, dict):
            raise ValueError("it must be results by name")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); remove it, and every training is checked again") from error
    return results


def _write(out: Path, results: Mapping[str, Any]) -> None:
    atomic_files.write_atomically(out / _RESULTS, [json.dumps(results, indent=2).encode(), b"\n"])
