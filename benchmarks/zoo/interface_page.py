"""docs/models-on-regard.md: the outcomes of the interface sweep as a page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import measured, report
from benchmarks.table import markdown
from benchmarks.zoo.sweep import Outcome, Sweep

VERDICTS = {
    "equal": "all outputs are within 1e-5 of those with eager attention, relative to the largest number",
    "as sdpa": "the outputs are within 1e-5 of those with sdpa; those with eager attention differ from both",
    "refused": "the attention has a part for which regard has no term, and the error names it",
    "not used": "the class does not call its attention through the interface, so that the name changes nothing",
    "WRONG": "the outputs differ without an error",
}


@dataclass(frozen=True)
class Interfaced(Outcome):
    """The result of one class; its verdict is one of VERDICTS, or "not built"."""

    calls: int = 0  # attentions that ran on regard
    difference: float = 0.0  # of the outputs from those with eager attention, relative


INTRO = """\
`python -m benchmarks.zoo.interface_sweep` builds a tiny model with random weights of every class in the model mappings
of transformers, by shrinking its default configuration, and compares its outputs with `attn_implementation="regard"`
and with `"eager"`, in float32. How a model is loaded so is in the [guide](guides/transformers.md).
"""


def page(result: Sweep[Interfaced]) -> str:
    """The whole page."""
    outcomes = result.outcomes
    counts = Counter(outcome.verdict for outcome in outcomes)
    built = [outcome for outcome in outcomes if outcome.verdict != "not built"]
    used = [outcome for outcome in built if outcome.verdict != "not used"]
    accepted = [outcome for outcome in used if outcome.verdict in ("equal", "as sdpa")]
    rows = [[verdict, f"{counts[verdict]:,}", text] for verdict, text in VERDICTS.items()]
    names = sorted(outcome.name for outcome in built if outcome.verdict == "not used")
    return "\n".join(
        [
            "# transformers' models on regard\n",
            INTRO,
            measured.conditions([("interface", result.about)]),
            f"{len(built):,} of {len(outcomes):,} classes were built, {len(used):,} of them use the interface, and "
            f"{len(accepted):,} of those ({len(accepted) / max(len(used), 1):.1%}) run on regard.\n",
            measured.table(["verdict", "classes", "meaning"], rows),
            "## Refused, and compared with sdpa\n",
            measured.table(["type", "verdict", "classes", "reason"], noted(used)),
            *speed(),
            "## Without the interface\n",
            ", ".join(names) + "\n",
        ]
    )


SPEED = """\
`python -m benchmarks models padding window memory` runs models with random weights with
`attn_implementation="regard"` and with `"sdpa"`, interleaved on one thread; ratios are of CPU time, medians with their
quartiles. A second copy of each model shows how far sdpa differs from itself. The lengths of the padded batch are those
of SST-2. Memory is the peak of a process of its own.
"""


def speed(folder: Path = report.RESULTS / "interface") -> list[str]:
    """The section on speed and memory; nothing if none was measured."""
    results = [report.read(path) for path in sorted(folder.glob("*.json"))]
    if not results:
        return []
    packages = ("regard", "python", "torch", "transformers")
    abouts = [
        (str(n), replace(each.about, versions={name: each.about.versions[name] for name in packages}))
        for n, each in enumerate(results)
    ]
    rows = [row for result in results for row in result.rows]
    return ["## Speed and memory\n", SPEED, measured.conditions(abouts), markdown(rows)]


def noted(outcomes: Sequence[Interfaced]) -> list[list[str]]:
    """One row per model type that is not equal."""
    groups: dict[tuple[str, str], list[Interfaced]] = {}
    for outcome in outcomes:
        if outcome.verdict != "equal":
            groups.setdefault((outcome.model_type, outcome.verdict), []).append(outcome)
    return [
        [model_type, verdict, str(len(group)), group[0].reason]
        for (model_type, verdict), group in sorted(groups.items())
    ]
