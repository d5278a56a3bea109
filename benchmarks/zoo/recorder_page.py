"""docs/recorded-models.md: the outcomes of the recorder sweep as a page."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import measured
from benchmarks.zoo.sweep import Outcome, Sweep

VERDICTS = {
    "exact": "every eager weight is in a recorded map, and every map is among the eager weights",
    "assembled": "attention computed in pieces, recorded as one map; every row of eager weights occurs in it, by rank",
    "certified": "the eager implementation reports no weights; P·V of every map equals the output of its module",
    "warned": "a warning names a module whose attention, or whose softmax, is not recorded",
    "no attention": "the class forms no attention weights, and a warning says that none were recorded",
    "WRONG": "a map is missing or wrong without a warning",
}


@dataclass(frozen=True)
class Recorded(Outcome):
    """The result of one class; its verdict is one of VERDICTS, or "not built"."""

    maps: int = 0
    eager: int = 0
    missing: int = 0  # eager weights without a map, and maps without eager weights
    is_comparable: bool = True  # the eager implementation has the same output as the default one


INTRO = """\
`python -m benchmarks.zoo.recorder_sweep` builds a tiny model with random weights of every class in the model mappings
of transformers, by shrinking its default configuration, records one call of it by [record](guides/record.md), and
compares the maps with the weights that its eager implementation forms: those that its eager functions return, those in
its outputs, and every softmax.

Weights are equal if they are at most 0.001 apart. A mean over heads counts as its map, and so does a row of zeros for a
query that may attend to nothing, where an implementation reports NaN or even weights. Reported tensors whose rows sum
neither to 1 nor to 0 are no attention weights and are not compared.
"""


def page(sweep: Sweep[Recorded]) -> str:
    """The whole page."""
    outcomes = sweep.outcomes
    counts = Counter(shown_verdict(outcome) for outcome in outcomes)
    built = [outcome for outcome in outcomes if outcome.verdict != "not built"]
    rows = [[verdict, f"{counts[verdict]:,}", text] for verdict, text in VERDICTS.items()]
    other = sorted(o.name for o in built if not o.is_comparable)
    parts = [
        "# Recorded models\n",
        INTRO,
        measured.conditions([("recorder", sweep.about)]),
        f"{len(built):,} of {len(outcomes):,} classes were built.\n",
        measured.table(["verdict", "classes", "meaning"], rows),
        f"In {len(other)} classes the two implementations of transformers have different outputs, so that the maps are "
        f"compared with the weights of the default one, written out: {', '.join(other) or 'none'}.\n",
        "## Assembled, certified and warned\n",
        measured.table(["type", "verdict", "classes", "warning"], noted(built)),
        "## Not built\n",
        "Classes that need a package that is not installed, inputs that the sweep does not know, or sizes that depend "
        "on each other:\n",
        measured.table(["reason", "classes", "names"], unbuilt(outcomes)),
    ]
    return "\n".join(parts)


def shown_verdict(outcome: Recorded) -> str:
    """The verdict; maps that could not be compared with eager weights have only their certificates."""
    is_uncompared = outcome.verdict in ("exact", "assembled") and not outcome.eager
    return "certified" if is_uncompared else outcome.verdict


def noted(outcomes: Sequence[Recorded]) -> list[list[str]]:
    """One row per model type whose attention is assembled or missing."""
    groups: dict[tuple[str, str], list[Recorded]] = {}
    for outcome in outcomes:
        if (verdict := shown_verdict(outcome)) in ("assembled", "certified", "warned", "WRONG"):
            groups.setdefault((outcome.model_type, verdict), []).append(outcome)
    return [
        [model_type, verdict, str(len(group)), _short(group[0].reason)]
        for (model_type, verdict), group in sorted(groups.items())
    ]


def _short(reason: str) -> str:
    """The beginning of a warning: what was found, and where."""
    found = re.match(r"record (found .*?)(,? (that|which) |; |$)", reason)
    return reason if found is None else found[1]


def unbuilt(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """One row per reason: the step that failed, and the kind of its error."""
    groups: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.verdict == "not built":
            reason = " ".join(re.split(r":\s*", outcome.reason)[:2])
            reason = (
                "a package is missing" if "ImportError" in reason else re.sub(r"\d+ million", "many million", reason)
            )
            groups.setdefault(reason, []).append(outcome.name)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [[reason, str(len(names)), ", ".join(sorted(names))] for reason, names in ordered]
