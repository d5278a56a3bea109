"""Rows, tables and pictures of an experiment, from their descriptions in its file.

A row has `what`, `score` and `unit`; further `minus`, `least` or `most` (numbers and scores, of which the strictest
holds), `digits`, `beside`, `how`, `pick` ("mean", "median", "max" over seeds, or "count 0.9": seeds that reach this),
`variants` (all if left out), `bounded` (variants that the bound holds for) and `over` (one row of all variants).
A score is a path such as `baseline/scores/accuracy`, with `variant:` before it for that of another variant.

A table has `title`, `columns` (pairs of a heading and a text), `said`, `sort` (a score), `by = "seed"` for a line per
run and `items` for a line per entry of a list in the values. Texts name scores in braces: `{accuracy}`, with a format
`{accuracy|.1f}`, `{accuracy|±}` for half the 95 % interval of the mean, `{accuracy|range}` or `{accuracy|each}`.

A picture has `file`, `said`, `draw` (a function of a run and a path) and `variant`; without a variant the function gets
all runs by variant.
"""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.experiment import Experiment, Options, function
from benchmarks.experiments.runner import TrainedRun, is_number
from benchmarks.result import Picture, Row, Table
from benchmarks.table import Bound
from regard.experiments.comparison import student

_PICKS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.mean,
    "median": statistics.median,
    "max": max,
}


class Scores:
    """The values of the runs by variant."""

    def __init__(self, runs: Sequence[TrainedRun]) -> None:
        self.runs: dict[str, list[TrainedRun]] = {}
        for run in runs:
            self.runs.setdefault(run.variant, []).append(run)

    def of(self, score: str, variant: str) -> list[Any]:
        """The values of all seeds; runs without the score are left out."""
        other, _, path = score.rpartition(":")
        if other and other in self.runs:
            variant, score = other, path
        values = [_at(run.values, score) for run in self.runs[variant]]
        return [value for value in values if value is not None]

    def mean(self, score: str | float, variant: str) -> float:
        return statistics.mean(self.of(score, variant)) if isinstance(score, str) else score

    def fill(self, text: str, variant: str, further: Mapping[str, Any] | None = None) -> str:
        """The text with its scores; empty where there is none."""
        names = {"variant": variant, "seeds": len(self.runs[variant]), **(further or {})}

        def filled(match: "re.Match[str]") -> str:
            score, _, form = match[1].partition("|")
            values = [names[score]] if score in names else self.of(score, variant)
            return _formatted([value for value in values if value is not None], form)

        return re.sub(r"\{([^{}]+)\}", filled, text)


def _at(values: Any, path: str) -> Any:
    for part in path.split("/"):
        if not isinstance(values, Mapping) or part not in values:
            return None
        values = values[part]
    return values


def _formatted(values: Sequence[Any], form: str) -> str:
    if not values:
        return ""
    if not all(map(is_number, values)):
        return ", ".join(map(str, values[0])) if isinstance(values[0], list) else str(values[0])
    if form == "range":
        return f"{min(values):.2f} to {max(values):.2f}"
    if form == "each":
        return ", ".join(f"{value:.2f}" for value in values)
    if form == "±":
        return f"{half_interval(values):.2f}"
    mean = statistics.mean(values)
    return format(mean, form) if form else f"{mean:,.0f}" if float(mean).is_integer() else f"{mean:.2f}"


def half_interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean."""
    count = len(values)
    return student(count) * statistics.stdev(values) / count**0.5 if count > 1 else float("nan")


def rows(experiment: Experiment, scores: Scores) -> list[Row]:
    found = []
    for spec in experiment.rows:
        names = [name for name in spec.get("variants", scores.runs) if name in scores.runs]
        if spec.get("over"):
            found += [_row(spec, names[0], names, experiment, scores)]
        else:
            found += [_row(spec, name, [name], experiment, scores) for name in names]
    return found


def _row(spec: Options, variant: str, names: Sequence[str], experiment: Experiment, scores: Scores) -> Row:
    values = [value for name in names for value in scores.of(spec["score"], name)]
    if not values:
        raise ValueError(f"{experiment.name} has no score {spec['score']!r} of {variant!r}; correct the row")
    if "minus" in spec:
        other = scores.of(spec["minus"], variant)
        pairs = zip(values, other, strict=True) if len(values) == len(other) else ()
        values = [a - b for a, b in pairs] or [statistics.mean(values) - statistics.mean(other)]
    pick, _, least = spec.get("pick", "mean").partition(" ")
    value = float(sum(each >= float(least) for each in values)) if pick == "count" else _PICKS[pick](values)
    first = scores.runs[variant][0]
    beside = "" if pick == "count" else f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else ""
    if len(values) == 1 and "minus" not in spec and (interval := _interval(first, spec["score"])) is not None:
        beside = "95 % interval {:.2f} to {:.2f}".format(*interval)
    beside = "; ".join(filter(None, [beside, scores.fill(spec.get("beside", ""), variant)]))
    how = "; ".join(
        filter(
            None,
            [
                *([] if spec.get("over") else [_end(first, len(scores.runs[variant]))]),
                experiment.variants[variant].how,
                scores.fill(spec.get("how", ""), variant),
            ],
        )
    )
    return Row(
        scores.fill(spec["what"], variant),
        value,
        scores.fill(spec.get("unit", ""), variant),
        _bound(spec, variant, scores),
        how,
        None if spec.get("over") else scores.mean("cpu", variant),
        spec.get("digits", 2),
        beside,
    )


def _bound(spec: Options, variant: str, scores: Scores) -> Bound | None:
    if variant not in spec.get("bounded", [variant]):
        return None
    for at, strictest in (("least", max), ("most", min)):
        if at in spec:
            limits = spec[at] if isinstance(spec[at], list) else [spec[at]]
            return Bound(at, round(strictest(scores.mean(limit, variant) for limit in limits), 6))  # type: ignore[arg-type]
    return None


def _interval(run: TrainedRun, score: str) -> Any:
    before, _, name = score.rpartition("/")
    return _at(run.values, f"{before}/intervals/{name}" if before else f"intervals/{name}")


def _end(run: TrainedRun, seeds: int) -> str:
    training = run.training
    ends = {"steps": training.steps, "epochs": training.epochs, "minutes": training.minutes}
    end = next(f"{value:,g} {name}" for name, value in ends.items() if value is not None)
    if "reached" in run.values:
        end = "until the goal"
    return f"{end}, {training.threads} thread{'s' * (training.threads != 1)}, {seeds} seed{'s' * (seeds != 1)}"


def tables(experiment: Experiment, scores: Scores) -> list[Table]:
    found = []
    for spec in experiment.tables:
        names = [name for name in spec.get("variants", scores.runs) if name in scores.runs]
        if "sort" in spec:
            names.sort(key=lambda name: -scores.mean(spec["sort"], name))
        texts = [text for _, text in spec["columns"]]
        if "items" in spec:
            items = [(name, item) for name in names for item in scores.of(spec["items"], name)[0]]
            lines = [[scores.fill(text, name, item) for text in texts] for name, item in items]
        elif spec.get("by") == "seed":
            single = [(Scores([run]), run) for name in names for run in scores.runs[name]]
            lines = [[one.fill(text, run.variant, {"seed": run.seed}) for text in texts] for one, run in single]
        else:
            further = {name: {"how": experiment.variants[name].how} for name in names}
            lines = [[scores.fill(text, name, further[name]) for text in texts] for name in names]
        found.append(Table(spec["title"], [heading for heading, _ in spec["columns"]], lines, spec.get("said", "")))
    return found


def pictures(experiment: Experiment, scores: Scores, folder: Path) -> list[Picture]:
    """Draws the pictures whose runs are there."""
    found = []
    for spec in experiment.pictures:
        variant = spec.get("variant")
        if variant is None or variant in scores.runs:
            drawn = scores.runs if variant is None else scores.runs[variant][0]
            function(spec["draw"])(drawn, folder / spec["file"])
            found.append(Picture(spec["file"], spec["said"]))
    return found
