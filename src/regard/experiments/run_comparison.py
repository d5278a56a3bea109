"""compare_runs: the examples that two trained models answer differently, and whether the difference may be chance.

comparison = compare_runs(first, second, options)      runs by load_run, options of the task's Evaluate
print(comparison.explain())
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regard.common.wording import number, plural
from regard.inference.evaluation import EvaluatedExample, Evaluation
from regard.metrics.paired import mcnemar, paired_bootstrap
from regard.tasks.loading import LoadedRun

# p below this is called significant
_LEVEL = 0.05
# a chrF that differs by less is the same
_SAME = 1e-9


@dataclass(frozen=True)
class Significance:
    """A test of the difference between two runs, by its name."""

    test: str
    p: float
    sentence: str


@dataclass(frozen=True)
class RunComparison:
    """The evaluations of two runs on the same examples."""

    first: Evaluation
    second: Evaluation
    pairs: Sequence[tuple[EvaluatedExample, EvaluatedExample]]

    @cached_property
    def changed(self) -> list[tuple[EvaluatedExample, EvaluatedExample]]:
        """The examples with another output, those that lost most first."""
        changed = [(one, two) for one, two in self.pairs if one.output != two.output]
        return sorted(changed, key=lambda pair: pair[1].score - pair[0].score)

    @cached_property
    def better(self) -> int:
        """The number of examples with a better output of the second run."""
        return sum(two.score > one.score + _SAME for one, two in self.pairs)

    @cached_property
    def worse(self) -> int:
        return sum(one.score > two.score + _SAME for one, two in self.pairs)

    @cached_property
    def significance(self) -> Significance:
        """Of right and wrong outputs by McNemar's exact test, of translations by the paired bootstrap of chrF."""
        if self.first.kind == "text":
            difference, (low, high), p = paired_bootstrap(
                *zip(*((a.score, b.score) for a, b in self.pairs), strict=True)
            )
            name = "paired bootstrap of the mean chrF of a line"
            numbers = f"{difference:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}, "
        else:
            right = [(a.score == 100, b.score == 100) for a, b in self.pairs]
            p, name = mcnemar(*zip(*right, strict=True)), "McNemar's exact test"
            gained, lost = sum(b and not a for a, b in right), sum(a and not b for a, b in right)
            numbers = f"{gained:,} wrong outputs became right, {lost:,} right ones wrong, "
        verdict = "the difference is significant" if p < _LEVEL else "the difference may be chance"
        return Significance(name, p, f"{name}: {numbers}p = {p:.3g}; {verdict}")

    def to_json(self) -> dict[str, Any]:
        return {
            "split": self.first.split,
            self.first.unit: len(self.pairs),
            "scores": [dict(self.first.scores), dict(self.second.scores)],
            "notes": [list(self.first.notes), list(self.second.notes)],
            "changed": len(self.changed),
            "better": self.better,
            "worse": self.worse,
            "test": self.significance.test,
            "p": self.significance.p,
        }

    def explain(self) -> str:
        """The scores of both, the numbers of changes, and the test."""
        names = [name for name in self.first.scores if name in self.second.scores]
        width = max(10, *(len(name) + 2 for name in names))
        lines = [
            f"{name:{width}}{number(self.first.scores[name]):>10}  →{number(self.second.scores[name]):>10}"
            for name in names
        ]
        count = plural(len(self.pairs), self.first.unit.removesuffix("s"))
        said = f"{count}, {self.first.split}: {len(self.changed):,} with another output, "
        said += f"{self.better:,} better, {self.worse:,} worse"
        warnings = [
            f"{run} run: {note}"
            for run, evaluation in (("first", self.first), ("second", self.second))
            for note in evaluation.notes
            if note.startswith("Warning")
        ]
        return "\n".join([*lines, said, self.significance.sentence, *warnings])


def compare_runs(
    first: LoadedRun,
    second: LoadedRun,
    options: Any,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> RunComparison:
    """Evaluates two runs of a task on the same examples."""
    if first.config.name != second.config.name:
        raise ValueError(
            f"{first.folder} is a run of {first.config.name}, and {second.folder} of {second.config.name}; "
            "compare runs of one task"
        )
    evaluations = [loaded.evaluate(options, progress) for loaded in (first, second)]
    if evaluations[0].kind is None:
        raise ValueError(
            f"runs of {first.config.name} are not compared by example; those that classify texts or pairs, tag and "
            "translate are"
        )
    examples = [list(evaluation.examples()) for evaluation in evaluations]
    data = [[(each.input, each.target) for each in part] for part in examples]
    if data[0] != data[1]:
        raise ValueError(
            f"{first.folder} and {second.folder} hold out other examples, {len(data[0]):,} and {len(data[1]):,}; "
            "give both the same by --test"
        )
    return RunComparison(evaluations[0], evaluations[1], list(zip(*examples, strict=True)))
