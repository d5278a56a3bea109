"""The outputs of taggers: tags of words, and spans with their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.common.tag_schemes import TaggedSpan
from regard.inference.margins import ranking_margin


class Tagging(NamedTuple):
    """The best tags of a sentence, and its intent."""

    tags: list[str]
    intent: str | None


@dataclass(frozen=True)
class PredictedSpan:
    """A span of the best tags: its place in words and in characters, its probability, and the best other reading.

    The runner-up is another label of the same words, or O for no span at them, with its probability.
    """

    label: str
    words: tuple[int, int]
    characters: tuple[int, int]
    text: str
    probability: float
    runner_up: tuple[str, float]
    margin: float = field(default=math.inf, compare=False)  # between the runner-up and the next one


@dataclass(frozen=True)
class TagOutput:
    """The words of a text with their tags and the probability of each, its spans, and its intent."""

    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    spans: tuple[PredictedSpan, ...]
    intent: tuple[str, float] | None = None
    paths: tuple[tuple[tuple[str, ...], float], ...] = ()
    margin: float = field(default=math.inf, compare=False)  # margin of the closest decision, relative to scores


def placed_span(
    span: TaggedSpan,
    probability: float,
    rivals: Sequence[tuple[str, float]],
    text: str,
    offsets: Sequence[tuple[int, int]],
) -> PredictedSpan:
    """A span with its place in characters, its probability and its runner-up."""
    place = offsets[span.start][0], offsets[span.end - 1][1]
    margin = ranking_margin([share for _, share in rivals], 1)
    return PredictedSpan(span.label, (span.start, span.end), place, text[slice(*place)], probability, rivals[0], margin)
