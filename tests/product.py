"""A sample of every product of parameters: `make test` runs it, `make test-all` (--whole) runs the whole product.

Two axes: every value of each. Three and more: every pair of values of two axes. The sample depends on nothing but the
cases, so two runs, and two processes of one run, test the same.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any

import pytest

# smaller products are tested whole
ENOUGH = 6
# set by --whole
whole = False


def first(values: Iterable[Any], size: int = 1) -> list[Any]:
    """Values for `parametrize`, of which `make test` runs the first `size`, and `make test-all` all."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.whole] if n >= size else [])
        for n, value in enumerate(values)
    ]


def axes(item: pytest.Item) -> list[list[str]]:
    """The parameters of a test, by the axis that they belong to: names of one `parametrize` vary together."""
    if (callspec := getattr(item, "callspec", None)) is None:
        return []
    rest = dict.fromkeys(callspec.params)
    found = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        found.append([name for name in names if rest.pop(name, name) is None])
    return [names for names in found if names] + [[name] for name in rest]


def values(item: pytest.Item) -> tuple[Hashable, ...]:
    """The place of a case on every axis."""
    params = item.callspec.params  # type: ignore[attr-defined]
    return tuple(tuple(map(id, (params[name] for name in names))) for names in axes(item))


def sample(cases: list[tuple[Hashable, ...]]) -> set[int]:
    """Numbers of the cases that together have every value, or every pair of values, of all cases.

    >>> len(sample(list(itertools.product("abcdefg", "xyz"))))
    7
    """
    strength = min(2, len(cases[0]) - 1)
    wanted = [set(itertools.combinations(enumerate(case), strength)) for case in cases]
    order = random.Random(0).sample(range(len(cases)), len(cases))
    missing, chosen = set().union(*wanted), set()
    while missing:
        best = max(order, key=lambda number: len(wanted[number] & missing))
        missing -= wanted[best]
        chosen.add(best)
    return chosen


def sampled(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests to run; the others are for --whole."""
    groups = defaultdict(list)
    for item in items:
        groups[item.nodeid.partition("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for cases in groups.values():
        if len(cases) > ENOUGH and len(axes(cases[0])) > 1:
            kept.update(cases[number] for number in sample([values(item) for item in cases]))
        else:
            kept.update(cases)
    return kept
