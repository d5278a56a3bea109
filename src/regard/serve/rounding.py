"""settle: answers that do not depend on the batch in which they were computed.

The numbers of an answer are rounded to DIGITS decimals. Computed in float64, two batches give numbers that differ by
about 1e-14; rounded, they are equal unless the end of an interval of rounding lies between them. So an output with a
number that is closer than TOLERANCE to such an end, or as close to the next one in a ranking, is computed again, alone:
every answer is the rounded answer of the input alone, as long as batches change no number by more than TOLERANCE.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

Output = TypeVar("Output")

DIGITS = 7
# relative to the number, absolute below 1
TOLERANCE = 1e-12
# the names of numbers by which a list is sorted
_RANKED = ("probability", "score")


def settle(
    outputs: Sequence[Output], write: Callable[[Output], dict[str, Any]], alone: Callable[[int], Output]
) -> list[tuple[Output, dict[str, Any]]]:
    """Each output with its JSON, rounded; `alone(n)` computes output n without the others, and is rarely called."""
    settled = []
    for n, output in enumerate(outputs):
        written = write(output)
        if not is_clear(written):
            output = alone(n)
            written = write(output)
        settled.append((output, rounded(written)))
    return settled


def rounded(value: Any) -> Any:
    """JSON with all its numbers rounded."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def is_clear(value: Any) -> bool:
    """Whether a change of each number by TOLERANCE changes neither a rounded number nor the order of a ranking."""
    if isinstance(value, float):
        return _is_inside(value)
    if isinstance(value, Mapping):
        return all(map(is_clear, value.values())) and _are_apart(list(value.values()))
    if isinstance(value, list | tuple):
        rankings = ([item[name] for item in value if isinstance(item, Mapping) and name in item] for name in _RANKED)
        return all(map(is_clear, value)) and all(map(_are_apart, rankings))
    return True


def _is_inside(number: float) -> bool:
    """Whether a number is not at the end of an interval of rounding."""
    if not math.isfinite(number):
        return True
    scaled = abs(number) * 10**DIGITS
    return abs(scaled - math.floor(scaled) - 0.5) > TOLERANCE * max(1.0, abs(number)) * 10**DIGITS


def _are_apart(numbers: Sequence[Any]) -> bool:
    """Whether no number of a ranking is as large as the next one, up to TOLERANCE; other values are no ranking."""
    if not all(isinstance(number, float) for number in numbers):
        return True
    return all(abs(a - b) > TOLERANCE * max(1.0, abs(a)) for a, b in pairwise(numbers))
