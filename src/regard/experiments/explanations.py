"""What the verbs attribute and faithfulness print: scores, tables, JSON, and the content of a page."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.attribution import Attribution, Faithfulness, FaithfulnessReport
from regard.cli.terminal_output import write_styled
from regard.viz.attribution.page import FaithfulnessPage, MethodRow
from regard.viz.recording.page.packing import png_data_url
from regard.viz.text.terminal import heatmap


def check_explained(run: Path, loaded: Any, verb: str, tasks: Sequence[str]) -> None:
    """Raises for a run of a task that the verb does not explain."""
    if loaded.config.name not in tasks:
        raise ValueError(
            f"{run} is a model of {loaded.config.name}, which regard {verb} does not explain; name one of "
            f"{', '.join(tasks[:-1])} or {tasks[-1]}"
        )


def print_scores(results: Sequence[Attribution]) -> None:
    """Prints a line of blocks per method, each scaled to its greatest score; the highest scores of a picture."""
    if results[0].grid is None:
        write_styled(_heatmap(results) + "\n\n")
    else:
        print(_patches(results[0].grid))
    for result in results:
        best = ", ".join(f"{result.tokens[n]} {float(result.scores[n]):+.3f}" for n in result.ranking()[:5])
        print(f"{result.method}: {best}{_completeness(result)}")


def _heatmap(results: Sequence[Attribution]) -> str:
    rows = torch.stack([result.scores / result.scores.abs().max().clamp_min(1e-30) for result in results])
    width = max(shutil.get_terminal_size((100, 24)).columns, 40)
    names = [result.method for result in results]
    return heatmap(rows, names, results[0].tokens, width=width, colour=sys.stdout.isatty())


def _patches(grid: torch.Tensor) -> str:
    return f"{grid.shape[0]} × {grid.shape[1]} patches, named (row, column) from the upper left"


def _completeness(result: Attribution) -> str:
    about = result.completeness
    if about is None:
        return ""
    return f" (their sum misses f(x) − f(x') = {about.difference:.3f} by {about.error:.1e}, {about.steps:,} steps)"


def as_json(result: Attribution) -> dict[str, Any]:
    about = result.completeness
    return {
        "method": result.method,
        "target": result.target,
        "probability": result.probability,
        "output": result.output,
        "tokens": list(result.tokens),
        "scores": result.scores.tolist(),
        **({} if result.grid is None else {"grid": list(result.grid.shape)}),
        "completeness": None
        if about is None
        else {"difference": about.difference, "error": about.error, "steps": about.steps},
        "warnings": list(result.warnings),
    }


def faithfulness_json(measured: Faithfulness) -> dict[str, Any]:
    test = measured.attention
    return {
        "attributions": {name: as_json(each) for name, each in measured.attributions.items()},
        "removal": measured.removal,
        "comprehensiveness": {name: each.comprehensiveness for name, each in measured.scores.items()},
        "sufficiency": {name: each.sufficiency for name, each in measured.scores.items()},
        "random": {
            "comprehensiveness": measured.random.comprehensiveness,
            "sufficiency": measured.random.sufficiency,
        },
        "agreement": {
            f"{a}, {b}": tau if measured.can_be_ranked else None for (a, b), tau in measured.agreement.items() if a < b
        },
        "attention": None
        if test is None
        else {
            "uniform": test.uniform_change,
            "permuted": test.permuted_change,
            "adversarial": {"distance": test.adversarial.distance, "change": test.adversarial.change},
        },
        "verdict": measured.sentence,
        "skipped": measured.skipped,
    }


def faithfulness_table(report: FaithfulnessReport) -> str:
    """The means over the inputs; the verdict of a single one."""
    random = f"random {report.inputs[0].units}"
    reference = "leave-one-out" if "leave-one-out" in report.methods else report.methods[0]
    width = max(map(len, [*report.methods, random])) + 2
    lines = [f"{'method':{width}}comprehensiveness  sufficiency  τ to {reference}"]
    for name in report.methods:
        row = f"{report.comprehensiveness(name):17.3f}  {report.sufficiency(name):11.3f}"
        tau = report.agreement(name, reference)
        lines.append(f"{name:{width}}{row}  {'–' if tau is None else f'{tau:.2f}':>{5 + len(reference)}}")
    count = len(report.inputs)
    means = [
        sum(getattr(each.random, column) for each in report.inputs) / count
        for column in ("comprehensiveness", "sufficiency")
    ]
    lines.append(f"{random:{width}}{means[0]:17.3f}  {means[1]:11.3f}")
    if report.adversarial_share is not None:
        lines.append(
            f"a very different attention gives the same output: {100 * report.adversarial_share:.0f} % of inputs"
        )
    if count == 1:
        lines.append(report.inputs[0].sentence)
    return "\n".join(lines)


def faithfulness_notes(report: FaithfulnessReport) -> list[str]:
    """What the table does not show: methods that do not apply, and warnings, each once."""
    notes: dict[str, None] = {}
    for measured in report.inputs:
        notes |= dict.fromkeys(f"{name} does not apply: {reason}" for name, reason in measured.skipped.items())
        for name, each in measured.attributions.items():
            notes |= dict.fromkeys(f"{name}: {sentence}" for sentence in each.warnings)
    return list(notes)


def faithfulness_page(measured: Faithfulness, picture: torch.Tensor | None = None) -> FaithfulnessPage:
    """The content of the page of one text, or of a picture, "c h w" from 0 to 1."""
    first = next(iter(measured.attributions.values()))
    rows = [
        MethodRow(
            name,
            tuple(each.scores.tolist()),
            measured.scores[name].comprehensiveness,
            measured.scores[name].sufficiency,
            measured.scores[name].curve,
        )
        for name, each in measured.attributions.items()
    ]
    names = list(measured.attributions)
    agreement = tuple(tuple(measured.agreement[a, b] for b in names) for a in names if measured.can_be_ranked)
    random = MethodRow(f"random {measured.units}", (), measured.random.comprehensiveness, measured.random.sufficiency)
    notes = [f"{sentence}." for sentence in faithfulness_notes(FaithfulnessReport((measured,)))]
    test = measured.attention
    if test is not None:
        notes.append(
            f"Uniform attention changes the probabilities by {test.uniform_change:.3f}, permuted attention by "
            f"{test.permuted_change:.3f} (median), and the most different map by {test.adversarial.change:.3f}."
        )
    title = f"{first.target} {100 * first.probability:.1f} %"
    return FaithfulnessPage(
        title,
        measured.sentence,
        first.tokens,
        (*rows, *_other_map(measured, len(first.tokens))),
        measured.removed,
        random,
        measured.band,
        agreement,
        measured.removal,
        tuple(notes),
        measured.unit,
        measured.units,
        None if first.grid is None else (first.grid.shape[0], first.grid.shape[1]),
        None if picture is None else png_data_url(picture),
    )


def _other_map(measured: Faithfulness, count: int) -> list[MethodRow]:
    """The most different attention that keeps the output, if it is one map over all tokens."""
    test = measured.attention
    if test is None or len(test.adversarial.weights) != 1 or test.adversarial.weights[0].shape[-1] != count:
        return []
    return [MethodRow("other attention, same output", tuple(test.adversarial.scores.tolist()))]
