"""Evaluation: the scores of a trained model on a data set, as a value that a verb prints as text or JSON."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")
# called with the number of examples that are done, and of all
Progress = Callable[[int, int], object]
# called with the number of examples that are done
Done = Callable[[int], object]

# the file of a run that has hashes of the examples of its files
EXAMPLES = "examples.safetensors"


@dataclass(frozen=True)
class EvaluatedExample:
    """One input with its target and its output, as texts.

    `score` is from 0, wrong, to 100, right. `probability` is that of the output and `of_target` that of the target,
    where a model gives them. `missed` and `wrong` are spans of the target that the output lacks, and the reverse.
    """

    input: str
    target: str
    output: str
    score: float
    probability: float | None = None
    of_target: float | None = None
    missed: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    source: str = ""  # the file that it is from


# the kind of the outputs of examples: a class, the spans of a text, a text
ExampleKind = Literal["class", "spans", "text"]


@dataclass(frozen=True)
class Evaluation:
    """The scores, the deciding one first, with outputs and sentences to read beside them."""

    scores: Mapping[str, float]
    count: int  # examples
    unit: str  # the plural of an example: "lines", "images"
    split: str  # the name of the data: "the test split", the names of files
    seconds: float
    predictions: Sequence[str] = ()  # one line per example, for a file
    samples: Sequence[str] = ()  # some outputs, for people
    notes: Sequence[str] = ()  # sentences about the scores
    facts: Mapping[str, Any] = field(default_factory=dict)  # further values of JSON
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # 95 % intervals of scores
    kind: ExampleKind | None = None  # None: it has no examples to look at
    examples: Callable[[], Sequence[EvaluatedExample]] = tuple  # made on demand, in the order of the data


def timed(compute: Callable[[Done], Value], count: int, progress: Progress) -> tuple[Value, float]:
    """The value that is computed of `count` examples, and the seconds that it took."""
    progress(0, count)
    start = time.perf_counter()
    value = compute(lambda done: progress(done, count))
    return value, time.perf_counter() - start


def sample_rows(count: int, most: int = 5) -> range:
    """The numbers of at most `most` of `count` examples, at equal distances."""
    return range(0, count, max(1, count // most))[:most]
