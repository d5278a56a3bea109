"""Rankings: classes, or candidates, with their probabilities, the likeliest first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.common.suggestions import known

Ranking = Sequence[tuple[str, float]]


def ranked_classes(classes: Sequence[str], probabilities: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:  # "k"
    """Classes with their probabilities, the likeliest first; of equal ones the earlier class."""
    return tuple((classes[n], float(probabilities[n])) for n in np.argsort(-probabilities, kind="stable").tolist())


def percentages(ranking: Ranking, count: int | None = None) -> list[str]:
    """The first `count` classes with their percentages."""
    return [f"{name} {100 * probability:.1f} %" for name, probability in ranking[:count]]


def class_number(target: str | int, classes: Sequence[str]) -> int:
    """The number of a class, given by its name or its number."""
    if isinstance(target, str):
        known("class", target, classes)
        return classes.index(target)
    if not 0 <= target < len(classes):
        raise ValueError(
            f"targets must be names of classes or numbers from 0 to {len(classes) - 1}, got {target}; "
            f"try {classes[0]!r}"
        )
    return target
