"""regard evaluate: the scores of a trained model."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import run_options
from regard.cli.output import note
from regard.cli.parsing.output_paths import check_output
from regard.cli.progress import example_progress
from regard.cli.run_options import parse_with_run
from regard.common.options.fields import flag, option, positional
from regard.common.wording import number, plural

if TYPE_CHECKING:
    from regard.inference.evaluation import Evaluation
    from regard.tasks.loading import LoadedRun


@dataclass(frozen=True)
class EvaluateOptions:
    """Score a trained model on data that it did not train on, and show some of its outputs.

    `regard evaluate RUN --help` lists only the options of the task of that run.
    """

    run: Path = positional()
    """The folder of a run, or of a released model in transformers' layout."""
    out: Path | None = option(None, metavar="FILE")
    """Write the outputs of the model into this file, one line each."""
    errors: Path | None = option(None, metavar="FILE")
    """Write the errors: a page (.html) with tables of classes or spans, of lengths and files, and the worst outputs
    with their attention; or all examples, the worst first (.tsv). For classes, pairs, tags and translations."""
    json: bool = flag()
    """Print one JSON object instead."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options, config = parse_with_run(EvaluateOptions, "evaluate", args)
    task_options = config.Evaluate(**options.task)
    out = options.out
    tests = {"a file of --test": getattr(task_options, "test", None) or ()}
    check_output("--out", out, options.run, inputs=tests)
    check_output("--errors", options.errors, options.run, (".html", ".tsv"), tests)
    if out is not None and options.errors is not None and out.absolute() == options.errors.absolute():
        raise ValueError(f"--out and --errors are the same file, {out}; name two files")
    loaded = run_options.load(options.run, options.load)
    with example_progress("example", sys.stderr) as progress:
        evaluation = loaded.evaluate(task_options, progress)
        if options.errors is not None:
            from regard.experiments.error_report import report_of

            report_of(evaluation, loaded, task_options, progress).write(options.errors)
            note(f"the errors are in {options.errors}")
    if out is not None:
        lines = (line.replace("\n", " ") + "\n" for line in evaluation.predictions)
        out.write_text("".join(lines), encoding="utf-8", newline="\n")
    if options.json:
        print(json.dumps(_as_json(evaluation, options.run, loaded), indent=2, ensure_ascii=False))
    else:
        _print(evaluation, loaded)
    return 0


def _as_json(evaluation: "Evaluation", run: Path, loaded: "LoadedRun") -> dict[str, Any]:
    return {
        "run": str(run),
        "weights": loaded.weights,
        "step": loaded.step,
        "split": evaluation.split,
        evaluation.unit: evaluation.count,
        **evaluation.facts,
        "scores": dict(evaluation.scores),
        **(
            {"intervals": {name: list(each) for name, each in evaluation.intervals.items()}}
            if evaluation.intervals
            else {}
        ),
        **({"notes": list(evaluation.notes)} if evaluation.notes else {}),
        "seconds": evaluation.seconds,
        f"{evaluation.unit}_per_second": evaluation.count / evaluation.seconds,
    }


def _print(evaluation: "Evaluation", loaded: "LoadedRun") -> None:
    width = max(10, *(len(name) + 2 for name in evaluation.scores))
    for name, value in evaluation.scores.items():
        low_high = evaluation.intervals.get(name)
        interval = "" if low_high is None else f"   (95 % interval {number(low_high[0])} to {number(low_high[1])})"
        print(f"{name:{width}}{number(value)}{interval}")
    count = plural(evaluation.count, evaluation.unit.removesuffix("s"))
    step = f", of step {loaded.step:,}" if loaded.step else ""
    print(f"{count}, {evaluation.split}, in {evaluation.seconds:.1f} s; {loaded.weights} weights{step}")
    for sentence in evaluation.notes:
        print(sentence)
    if evaluation.samples:
        print()
    for sample in evaluation.samples:
        print(f"  {sample}")
