"""Evaluation: the scores of a trained model on a data set, as a value that a verb prints as text or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """The scores, the score that decides first, and what there is to read beside them."""

    scores: Mapping[str, float]
    count: int  # examples
    unit: str  # what an example is, in the plural: "pairs", "images"
    split: str  # "valid", "test" or the names of files
    seconds: float
    predictions: Sequence[str] = ()  # one line per example, for a file
    samples: Sequence[str] = ()  # lines worth showing
    notes: Sequence[str] = ()  # sentences about how the scores came about
    facts: Mapping[str, Any] = field(default_factory=dict)  # further values of JSON
