"""regard compare-runs: the inputs that two trained models answer differently."""

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli import run_options
from regard.cli.parsing.output_paths import check_output
from regard.cli.progress import example_progress
from regard.cli.run_options import parse_with_runs
from regard.common.options.fields import flag, option, positional
from regard.data.spreadsheets.safe_cell import safe_cell

# changes that are printed
_SHOWN = 10


@dataclass(frozen=True)
class CompareRunsOptions:
    """Compare two runs on the same examples: their scores, the inputs whose outputs changed, and whether the difference
    may be chance, by McNemar's exact test of right and wrong outputs, or by a paired bootstrap of chrF.

    Without --test both must hold out the same examples. For runs that classify texts or pairs, tag, or translate.

    Example: regard compare-runs runs/old runs/new --test test.csv
    """

    run: tuple[Path, ...] = positional(metavar="RUN RUN")
    """The folders of two runs of one task, the earlier one first."""
    out: Path | None = option(None, metavar="FILE")
    """Write the examples with another output into this file (.tsv), those that became worse first."""
    json: bool = flag()
    """Print one JSON object instead."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options, configs = parse_with_runs(CompareRunsOptions, "compare-runs", args)
    if len(options.run) != 2:
        raise ValueError(f"regard compare-runs takes two runs, got {len(options.run)}; name two folders")
    task_options = configs[0].Evaluate(**options.task)
    for folder in options.run:
        tests = {"a file of --test": getattr(task_options, "test", None) or ()}
        check_output("--out", options.out, folder, (".tsv",), tests)
    first, second = (run_options.load(folder, options.load) for folder in options.run)
    from regard.experiments.run_comparison import compare_runs

    with example_progress("example", sys.stderr) as progress:
        comparison = compare_runs(first, second, task_options, progress)
    if options.out is not None:
        with open(options.out, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            writer = csv.writer(file, dialect="excel-tab", lineterminator="\n")
            writer.writerow(("before", "now", "input", "target", "output before", "output now"))
            writer.writerows(
                (
                    f"{one.score:.4g}",
                    f"{two.score:.4g}",
                    *map(safe_cell, (one.input, one.target, one.output, two.output)),
                )
                for one, two in comparison.changed
            )
    if options.json:
        runs = [str(folder) for folder in options.run]
        print(json.dumps({"runs": runs, **comparison.to_json()}, indent=2, ensure_ascii=False))
        return 0
    print(comparison.explain())
    for one, two in comparison.changed[:_SHOWN]:
        sign = "+" if two.score > one.score else "-" if two.score < one.score else "="
        print(f"  {sign} {_line(one.input)}: {_line(one.output)} → {_line(two.output)}   (right: {_line(one.target)})")
    return 0


def _line(text: str) -> str:
    return " ".join(text.split())
