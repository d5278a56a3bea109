"""regard runs: the runs in a folder, with their scores, dates and curves."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.cli.parsing.parser import parse
from regard.common.options.fields import flag, positional
from regard.common.wording import number, plural
from regard.tasks.run_list import RunSummary, list_runs

_BARS = "▁▂▃▄▅▆▇█"
# validations that a curve shows
_POINTS = 16


@dataclass(frozen=True)
class RunsOptions:
    """List the runs in a folder and in the folders below it, the latest first: task, model, data, best validation,
    date, and the curve of its deciding score.

    Example: regard runs runs
    """

    folder: Path = positional(Path(), metavar="FOLDER")
    """The folder; the working directory if left out."""
    json: bool = flag()
    """Print a JSON object per run instead."""


def run(args: Sequence[str]) -> int:
    options = parse(RunsOptions, "regard runs", args)
    summaries = list_runs(options.folder)
    if options.json:
        for each in summaries:
            print(json.dumps(asdict(each), ensure_ascii=False))
        return 0
    rows = [_row(each) for each in summaries if not each.error]
    headings = ("run", "task", "model", "data", "best", "at step", "of", "changed", "curve")
    widths = [max(len(row[n]) for row in [headings, *rows]) for n in range(len(headings))] if rows else []
    for row in [headings, *rows] if rows else []:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for each in summaries:
        if each.error:
            print(f"{each.run}: {each.error}")
    if not summaries:
        print(f"there is no run in {options.folder}")
    else:
        print(f"\n{plural(len(summaries), 'run')}")
    return 0


def _row(summary: RunSummary) -> tuple[str, ...]:
    best = "" if summary.best is None else f"{summary.metric} {number(summary.best)}"
    step = "" if summary.best_step is None else f"{summary.best_step:,}"
    last = "" if summary.step is None else f"{summary.step:,}"
    kept = summary.changed if summary.has_weights else f"{summary.changed} (no weights)"
    return summary.run, summary.task, summary.model, summary.data, best, step, last, kept, _curve(summary.curve)


def _curve(values: Sequence[float]) -> str:
    """The values as bars from the least to the greatest, of as many validations as fit."""
    finite = [value for value in values if abs(value) < float("inf")]
    if len(finite) < 2:
        return ""
    shown = [finite[round(n * (len(finite) - 1) / (_POINTS - 1))] for n in range(_POINTS)]
    shown = finite if len(finite) <= _POINTS else shown
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)
