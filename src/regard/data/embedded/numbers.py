"""Distinct numbers of 0 to 99 -> the same in order, or those of the points on their convex hull.  No torch here.

    sort   37 4 91 15   -> 4 15 37 91       from the least to the greatest
    hull   0 9 44 90    -> 0 90 9           the number 10 x + y is the point (x, y) of a grid of 10 × 10

Targets are numbers of their source, none twice  (Vinyals et al. 2015, sections 4.2 and 3.1; there the points are any of
a square). A hull begins at its least number and goes around anticlockwise; a point on the line between two others is
none of its corners. No source occurs twice.
"""

from collections.abc import Callable, Iterator, Sequence
from math import perm

import numpy as np

from regard.data.embedded._generated import check_counts, cut, distinct
from regard.data.text.pairs import Pairs, Splits

NUMBERS, SIDE = 100, 10
# numbers that a source has at least
SHORTEST = 2
# numbers sampled at a time
_CHUNK = 10_000
# seed of the sequences of one length, which differ from those of all splits
_OF_LENGTH = 1

Answer = Callable[[Sequence[int]], Sequence[int]]


def sort_splits(
    seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 10
) -> Splits:
    """2 to `longest` numbers, uniform over lengths; a pure function of its arguments."""
    return _splits(sorted, seed, longest, train=train, valid=valid, test=test)


def sort_of_length(seed: int, count: int, length: int, known: set[str]) -> Pairs:
    """New sources of this many numbers."""
    return _of_length(sorted, seed, count, length, known)


def hull_splits(
    seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 10
) -> Splits:
    """2 to `longest` points, uniform over lengths; a pure function of its arguments."""
    return _splits(convex_hull, seed, longest, train=train, valid=valid, test=test)


def hull_of_length(seed: int, count: int, length: int, known: set[str]) -> Pairs:
    """New sources of this many points."""
    return _of_length(convex_hull, seed, count, length, known)


def convex_hull(numbers: Sequence[int]) -> list[int]:
    """The corners of the convex hull of points 10 x + y, anticlockwise from the least  (Andrew 1979)."""
    points = sorted(divmod(number, SIDE) for number in numbers)
    halves = [_half_hull(each) for each in (points, points[::-1])]
    return [SIDE * x + y for half in halves for x, y in half[:-1]]


def _half_hull(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The corners from the first to the last point that have all others on their left."""
    half: list[tuple[int, int]] = []
    for x, y in points:
        while len(half) > 1 and _turn(half[-2], half[-1], (x, y)) <= 0:
            half.pop()
        half.append((x, y))
    return half


def _turn(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    """Positive if the way from a over b to c turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _sources(rng: np.random.Generator, shortest: int, longest: int) -> Iterator[str]:
    """Distinct numbers, without end, uniform over these lengths."""
    while True:
        lengths = rng.integers(shortest, longest + 1, _CHUNK)
        rows = rng.random((_CHUNK, NUMBERS)).argsort(1)
        for row, length in zip(rows, lengths, strict=True):
            yield " ".join(map(str, row[:length].tolist()))


def _pairs(answer: Answer, sources: Sequence[str]) -> Pairs:
    return Pairs(sources, [" ".join(map(str, answer([*map(int, source.split())]))) for source in sources])


def _splits(answer: Answer, seed: int, longest: int, **counts: int) -> Splits:
    check_counts(**counts)
    _check_length("longest", longest)
    total = sum(counts.values())
    available = sum(perm(NUMBERS, length) for length in range(SHORTEST, longest + 1))
    if 2 * total > available:
        raise ValueError(
            f"train + valid + test must be at most half of the {available} sequences of up to {longest} numbers, "
            f"got {total}; raise longest={longest} or ask for fewer"
        )
    sources = distinct(_sources(np.random.default_rng(seed), SHORTEST, longest), total, set())
    return Splits(*(_pairs(answer, part) for part in cut(sources, counts["valid"], counts["test"])))


def _of_length(answer: Answer, seed: int, count: int, length: int, known: set[str]) -> Pairs:
    _check_length("length", length)
    num_known = sum(len(source.split()) == length for source in known)
    if 2 * (count + num_known) > perm(NUMBERS, length):
        raise ValueError(
            f"length must be large enough for {count} new sequences, got {length}, of which there are "
            f"{perm(NUMBERS, length)}; try length=10"
        )
    rng = np.random.default_rng([seed, _OF_LENGTH])
    return _pairs(answer, distinct(_sources(rng, length, length), count, known))


def _check_length(name: str, length: int) -> None:
    if not SHORTEST <= length <= NUMBERS:
        raise ValueError(f"{name} must be from {SHORTEST} to {NUMBERS} distinct numbers, got {length}; try {name}=10")
