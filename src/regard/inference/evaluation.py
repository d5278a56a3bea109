"""Evaluation: the scores of a trained model on a data set, as a value that a verb prints as text or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# the file of a run that has hashes of the examples of its files
EXAMPLES = "examples.safetensors"


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
