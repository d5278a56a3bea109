"""Numbers: sorted ones, and convex hulls against another algorithm."""

import itertools
import math

import numpy as np
import pytest

from regard.data.embedded.numbers import (
    convex_hull,
    hull_of_length,
    hull_splits,
    sort_of_length,
    sort_splits,
)


def values(line: str) -> list[int]:
    return [*map(int, line.split())]


def test_targets_are_sorted_sources() -> None:
    parts = sort_splits(train=503, valid=11, test=23, longest=7)
    for pairs in (parts.train, parts.valid, parts.test):
        for source, target in zip(pairs.source, pairs.target, strict=True):
            assert values(target) == sorted(values(source))
            assert len(set(values(source))) == len(values(source)) <= 7
    assert {number for line in parts.train.source for number in values(line)} == set(range(100))
    lengths = [len(values(line)) for line in parts.train.source]
    assert all(50 < lengths.count(n) < 120 for n in range(2, 8))


def wrapped(numbers: list[int]) -> list[int]:
    """The hull by gift wrapping: from each corner to the point that has all others on its left."""
    points = {number: complex(*divmod(number, 10)) for number in numbers}
    hull = [min(numbers)]
    while True:
        at = points[hull[-1]]
        others = [number for number in numbers if number != hull[-1]]
        for number in others:
            way = points[number] - at
            turns = {other: ((points[other] - at) * way.conjugate()).imag for other in others}
            # of several points in one direction the farthest is the corner
            straight = [abs(points[other] - at) for other, turn in turns.items() if not turn]
            if min(turns.values()) >= 0 and abs(way) == max(straight):
                break
        if number == hull[0]:
            return hull
        hull.append(number)


def test_hulls_are_those_of_another_algorithm() -> None:
    draw = np.random.default_rng(0)
    for count in (2, 3, 5, 11, 29):
        for _ in range(20):
            numbers = draw.permutation(100)[:count].tolist()
            assert convex_hull(numbers) == wrapped(numbers), numbers
    assert convex_hull([0, 9, 44, 90]) == [0, 90, 9]
    assert convex_hull([22, 0, 44, 11]) == [0, 44], "points on one line"
    parts = hull_splits(train=31, valid=2, test=3)
    assert [convex_hull(values(line)) for line in parts.train.source] == [*map(values, parts.train.target)]


def test_new_sources_of_one_length() -> None:
    known = set(sort_splits(train=97, valid=2, test=3).train.source)
    for of_length in (sort_of_length, hull_of_length):
        pairs = of_length(0, 41, 13, known)
        assert {len(values(line)) for line in pairs.source} == {13}
        assert len({*pairs.source, *known}) == 41 + len(known)


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="longest must be from 2 to 100 distinct numbers, got 1; try longest=10"):
        sort_splits(longest=1)
    with pytest.raises(ValueError, match="length must be from 2 to 100 distinct numbers, got 101; try length=10"):
        hull_of_length(0, 3, 101, set())
    pairs = math.perm(100, 2)
    with pytest.raises(
        ValueError, match=f"at most half of the {pairs} sequences of up to 2 numbers, got 103000; raise"
    ):
        sort_splits(longest=2)
    known = {f"{a} {b}" for a, b in itertools.islice(itertools.permutations(range(100), 2), 4900)}
    with pytest.raises(ValueError, match=f"large enough for 51 new sequences, got 2, of which there are {pairs}; try"):
        sort_of_length(0, 51, 2, known)
