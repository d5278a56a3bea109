"""compare: the same model with several values of one option, each trained in a process of its own; and their table."""

import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.common import atomic_files, json_files
from regard.common.wording import clock, number
from regard.experiments.attacked_run import Report, silent
from regard.experiments.attention_properties import attention_properties
from regard.experiments.robust_accuracy import robust_accuracy
from regard.tasks.base import TaskConfig
from regard.tasks.registry import config_from_record
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, METRICS, RECORD, RunRecord, config_tables, first_difference, write_config
from regard.training.runtime import peak_memory
from regard.training.runtime.signals import terminable
from regard.training.step import Diverged
from regard.viz.plots.curve import curve

_CONFIG, RESULTS, _TABLE, _CURVE = "compare.toml", "results.json", "table.md", "curve.png"


class TrainingFailed(RuntimeError):
    """The process of a training ended with an error, which it has printed."""

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(f"the training of {name} failed with exit code {exit_code}; its own error stands above")
        self.name, self.exit_code = name, exit_code


@dataclass(frozen=True)
class ComparedRun:
    """The numbers of one run, as results.json has them."""

    name: str
    done: bool
    diverged: bool
    peak_bytes: int | None
    scores: dict[str, float]  # the best validation, and attacks and properties if they were measured
    step: int | None  # the step of the best validation
    tokens_per_second: float | None  # the median
    parameters: int
    seconds: float | None
    steps: int
    threads: int | None

    @property
    def variant(self) -> str:
        """The name without its seed."""
        return self.name.partition("@")[0]


@dataclass(frozen=True)
class Comparison:
    """The runs of a comparison, the best first, and the files of the results."""

    config: TaskConfig
    training: TrainingConfig
    runs: tuple[ComparedRun, ...]
    varied: str = "trained"
    files: tuple[Path, ...] = ()

    def table(self) -> str:
        """A table in Markdown with one row per variant: of several seeds the means and 95 % intervals."""
        return _table(self.runs, self.config, self.training, self.varied)


def compare(
    variants: Mapping[str, TaskConfig],
    training: TrainingConfig,
    out: Path,
    *,
    base: TaskConfig | None = None,
    varied: str = "trained",
    attack: str | None = None,
    eps: float | None = None,
    properties: bool = False,
    report: Report = silent,
) -> Comparison:
    """Trains the variants, each in a process of its own, into folders of their names in `out`.

    `base`, the first variant if it is None, names the comparison in the table and in the folder; `varied`, such as
    "decoder", stands above the names of the variants. A folder that holds a comparison with the same options is
    continued: runs that are finished stay. `attack` and `eps` add the accuracy under an attack to the scores,
    `properties` measures of the attention. `report` receives lines about the progress.
    """
    base = next(iter(variants.values())) if base is None else base
    is_new = not holds_comparison(out, base, training)
    check(variants)
    if is_new:
        out.mkdir(parents=True, exist_ok=True)
        write_config(out / _CONFIG, base, training)
    try:
        for name, config in variants.items():
            _train(name, config, training, out, report)
    except TrainingFailed:
        if is_new and not any(out.glob(f"*/{RECORD}")):  # refused before its first step: the folder holds nothing
            (out / _CONFIG).unlink()
            (out / RESULTS).unlink()
            with contextlib.suppress(OSError):
                out.rmdir()
        raise
    return write_results(base, out, training, attack, eps, varied=varied, properties=properties, report=report)


_MAX_SEEDS = 1000  # a greater number is a mistake: its runs would take weeks


def with_seeds(variants: Mapping[str, TaskConfig], seeds: int) -> dict[str, TaskConfig]:
    """Every variant with this many seeds, NAME@SEED; the same variants if there is one seed."""
    if not 1 <= seeds <= _MAX_SEEDS:
        raise ValueError(f"seeds must be from 1 to {_MAX_SEEDS}, got {seeds}; try seeds=5")
    if seeds == 1:
        return dict(variants)
    return {
        f"{name}@{config.seed + n}": config.with_options(seed=config.seed + n)
        for name, config in variants.items()
        for n in range(seeds)
    }


def check(variants: Mapping[str, TaskConfig]) -> None:
    """Raises before any training if a variant cannot be trained."""
    for name, config in variants.items():
        try:
            config.load().check_options()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} cannot be compared: {error}") from error


def holds_comparison(out: Path, base: TaskConfig, training: TrainingConfig) -> bool:
    """Whether the folder holds a comparison with these options; raises if it holds another one, or a run."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"out={str(out)!r} is a file, and a comparison is a folder; take another name")
    if (out / RECORD).exists():
        raise FileExistsError(f"out={str(out)!r} is the folder of a run; name another for the comparison")
    path = out / _CONFIG
    if not path.exists():
        return False
    try:
        recorded = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error}); name another folder") from error
    if (difference := first_difference(recorded, config_tables(base, training))) is not None:
        name, before, now = difference
        raise ValueError(
            f"{out} holds a comparison with {name} {before!r}, not {now!r}; give the same options, or another folder"
        )
    return True


def _train(name: str, config: TaskConfig, training: TrainingConfig, out: Path, report: Report) -> None:
    """Trains a variant or resumes its training, unless it is finished; raises TrainingFailed if the process fails."""
    results = _read(out)
    if results.get(name, {}).get("done"):
        report(f"{name} is trained already")
        return
    folder, path = out / name, out / f"{name}.options.toml"
    report(name)
    if (folder / RECORD).exists():
        trusted = [word for module in config.modules(config.to_json()) for word in ("--trust-module", module)]
        options = ["--resume", str(folder), *trusted]
    else:
        write_config(path, config, training)
        options = [config.name, "--config", str(path), "--out", str(folder)]
    code = _process(["train", *options])
    diverged = code == Diverged.exit_code
    result = {"done": diverged or code == 0, "diverged": diverged, "peak_bytes": peak_memory.read(folder)}
    _write(out, {**results, name: result})
    if code and not diverged:
        if not (folder / RECORD).exists():
            path.unlink(missing_ok=True)
        raise TrainingFailed(name, code)


def _process(args: list[str]) -> int:
    """The exit code of a command in a process of its own."""
    # -P: no file of the working directory is imported instead of a library
    child = subprocess.Popen([sys.executable, "-P", "-m", "regard", *args], stdout=sys.stderr.fileno())
    with terminable():
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
    varied: str = "trained",
    properties: bool = False,
    report: Report = silent,
) -> Comparison:
    """The finished runs of a folder, whose table, numbers as JSON and scores over time are written there."""
    curves: dict[str, list[tuple[float, float]]] = {}
    runs: list[ComparedRun] = []
    for name, result in _read(out).items():
        if result.get("done"):
            run, curves[name] = _measure(name, result, out / name)
            further = _further_scores(out / name, attack, eps, properties, report)
            runs.append(replace(run, scores={**run.scores, **further}))
    metric, higher = base.metric, base.metrics[base.metric]
    runs.sort(key=lambda run: run.scores.get(metric, -np.inf if higher else np.inf), reverse=higher)
    _write(out, {run.name: asdict(run) for run in runs})
    comparison = Comparison(base, training, tuple(runs), varied)
    atomic_files.write_atomically(out / _TABLE, [comparison.table().encode()])
    # only the first of several seeds: the figure has one line per variant
    drawn = {name.partition("@")[0]: points for name, points in reversed(curves.items()) if points}
    files = [out / _TABLE, out / RESULTS]
    if drawn:
        files.append(curve(drawn, out / _CURVE, "minutes of training", metric, floor=0.0))
    return replace(comparison, files=tuple(files))


def _measure(name: str, result: Mapping[str, Any], run: Path) -> tuple[ComparedRun, list[tuple[float, float]]]:
    """The numbers of a run, and its validation scores over the minutes of training."""
    try:
        lines = [json_files.parse(line) for line in (run / METRICS).read_bytes().splitlines()]
    except ValueError as error:
        raise ValueError(f"{run / METRICS} cannot be read ({error}); remove {run}, and it is trained again") from error
    steps = [line for line in lines if line["kind"] == "step"]
    validations = [line for line in lines if line["kind"] == "validation"]
    facts = checkpoint.read(run / BEST).facts if (run / BEST).exists() else {}
    record = RunRecord.read(run)
    model = config_from_record(record, run).load().predictor(run).model
    minutes = np.interp(
        [line["step"] for line in validations],
        [0, *(line["step"] for line in steps)],
        [0, *(line["elapsed"] / 60 for line in steps)],
    )
    compared = ComparedRun(
        name,
        done=result["done"],
        diverged=result["diverged"],
        peak_bytes=result["peak_bytes"],
        scores=facts.get("score", {}),
        step=facts.get("step"),
        tokens_per_second=statistics.median(line["tokens_per_second"] for line in steps) if steps else None,
        parameters=sum(p.numel() for p in model.parameters()),
        seconds=steps[-1]["elapsed"] if steps else None,
        steps=steps[-1]["step"] if steps else 0,
        threads=record.threads,
    )
    scores = [line.get(facts.get("main", "")) for line in validations]
    points = [(x, score) for x, score in zip(minutes.tolist(), scores, strict=True) if score is not None]
    return compared, points


def _further_scores(
    run: Path, attack: str | None, eps: float | None, properties: bool, report: Report
) -> dict[str, float]:
    """The accuracy of the best weights under an attack, and the properties of their attention, as far as asked for."""
    scores: dict[str, float] = {}
    if attack is not None and (run / BEST).exists():
        report(f"{attack} on {run}")
        title = f"{attack}, test" if eps is None else f"{attack} {eps:g}, test"
        try:
            scores[title] = robust_accuracy(run, attack, eps, report)
        except ValueError as error:
            # a bag of words has no vectors to attack by: its row is without this number
            if eps is not None:
                raise
            report(str(error))
    if properties and (run / BEST).exists():
        scores |= attention_properties(run)
    return scores


# the half-width of a 95 % interval in standard errors, by the number of values  (Student 1908)
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def student(count: int) -> float:
    """The half-width for any number of values; beyond the table by the expansion of the t quantile in 1/ν."""
    if count in _STUDENT:
        return _STUDENT[count]
    z, freedom = 1.959964, count - 1
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _table(runs: Sequence[ComparedRun], config: TaskConfig, training: TrainingConfig, varied: str) -> str:
    metric = config.metric
    groups = _groups(runs, metric, config.metrics[metric])
    scores = [_score_texts(group) for group in groups]
    names = list(dict.fromkeys([metric, *(name for texts in scores for name in texts)]))
    head = [varied, *names, f"{config.unit}/s", "parameters", "peak memory", "time", "steps"]
    body = [
        _cells(group, [texts.get(name, "–") for name in names]) for group, texts in zip(groups, scores, strict=True)
    ]
    widths = [max(len(line[n]) for line in [head, *body]) for n in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        "| " + " | ".join(f"{cell:{'<' if n == 0 else '>'}{widths[n]}}" for n, cell in enumerate(line)) + " |"
        for line in [head, rule, *body]
    ]
    ends = {"steps": training.steps, "epochs": training.epochs, "minutes": training.minutes}
    budget = ", ".join(f"{value:g} {name}" for name, value in ends.items() if value is not None)
    return f"{config.title}, {budget} each; the best validation, by {metric}.\n\n" + "\n".join(lines) + "\n"


def _groups(runs: Sequence[ComparedRun], metric: str, higher: bool) -> list[list[ComparedRun]]:
    """The runs of each variant, the best mean first; where a variant has runs NAME@SEED, a run NAME is left out."""
    groups: dict[str, list[ComparedRun]] = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    seeds = [[run for run in group if "@" in run.name] or group for group in groups.values()]

    def mean(group: list[ComparedRun]) -> float:
        values = [run.scores[metric] for run in group if metric in run.scores]
        worst = -np.inf if higher else np.inf
        return statistics.mean(values) if values else worst

    return sorted(seeds, key=mean, reverse=higher)


def _score_texts(runs: Sequence[ComparedRun]) -> dict[str, str]:
    """The scores of a run by name, or of several seeds the means with their intervals."""
    if len(runs) == 1:
        return {name: number(value) for name, value in runs[0].scores.items()}
    texts: dict[str, str] = {}
    for name in runs[0].scores:
        values = [run.scores[name] for run in runs if name in run.scores]
        if len(values) > 1:
            half = student(len(values)) * statistics.stdev(values) / len(values) ** 0.5
            texts[name] = f"{number(statistics.mean(values))} ± {number(half)}"
    return texts


def _cells(runs: Sequence[ComparedRun], scores: Sequence[str]) -> list[str]:
    """A row of the table: of several seeds the median rate, the highest peak, and the time of all."""
    first = runs[0]
    name = first.name if len(runs) == 1 else f"{first.variant} ({len(runs)} seeds)"
    rates = [run.tokens_per_second for run in runs if run.tokens_per_second]
    peak = max(run.peak_bytes or 0 for run in runs)
    seconds = sum(run.seconds or 0 for run in runs)
    return [
        name + (" (diverged)" if any(run.diverged for run in runs) else ""),
        *scores,
        f"{statistics.median(rates):,.0f}" if rates else "–",
        f"{first.parameters:,}",
        f"{peak / 1e6:,.0f} MB" if peak else "–",
        clock(seconds) if seconds else "–",
        f"{first.steps:,}",
    ]


def _read(out: Path) -> dict[str, Any]:
    path = out / RESULTS
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
    atomic_files.write_atomically(out / RESULTS, [json.dumps(results, indent=2).encode(), b"\n"])
