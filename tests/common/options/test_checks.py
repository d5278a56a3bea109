"""Checks of options that several tasks share."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from regard.common.options.checks import CheckedOptions, check_even_heads, check_top
from regard.common.options.fields import at_least, positive, random_seed, share


@dataclass
class Options:
    top: int


def test_no_more_classes_than_there_are() -> None:
    check_top(Options(10), 10)
    with pytest.raises(ValueError, match="--top 99 exceeds the 10 classes of this run; try --top 10"):
        check_top(Options(99), 10)


def test_widths_split_over_heads() -> None:
    check_even_heads(12, 3)
    check_even_heads(None, 3)
    check_even_heads(12, None)
    with pytest.raises(ValueError, match="width must split evenly over heads, got width=10 and heads=4; try width=8"):
        check_even_heads(10, 4)
    with pytest.raises(ValueError, match="got width=3 and heads=4; try width=4, or another number of heads"):
        check_even_heads(3, 4)


@dataclass(frozen=True)
class Sizes(CheckedOptions):
    width: int = at_least(1, 8)
    feed: int = at_least(1)
    seed: int = random_seed(0)
    rate: float = positive(1.0)
    filters: tuple[int, int] = at_least(1, (16, 16))
    rates: tuple[float, ...] | None = share((0.5,))
    joint: bool = False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 10**400}, f"width must be at most {2**53}, got 1000"),
        ({"filters": (2**53 + 1, 1)}, f"filters must be at most {2**53}, got (9007199254740993, 1)"),
        ({"seed": 10**400}, "seed must be 0 or more and below 2^63 and finite, got 1000"),
        ({"rate": 10**400}, f"rate must be at most {2**53}, got 1000"),
        ({"width": None}, "width must have a value, got None; leave it out for 8"),
        ({"filters": None}, "filters must have a value, got None; leave it out for (16, 16)"),
        ({"filters": 3}, "filters must be a tuple of 2 whole numbers, got 3; try filters=(16, 16)"),
        ({"filters": "12"}, "filters must be a tuple of 2 whole numbers, got '12'"),
        ({"filters": (1,)}, "filters must be a tuple of 2 whole numbers, got (1,)"),
        ({"filters": (1, True)}, "filters must be a tuple of 2 whole numbers, got (1, True)"),
        ({"filters": (1, 2.0)}, "filters must be a tuple of 2 whole numbers, got (1, 2.0)"),
        ({"filters": [0, 1]}, "filters must be 1 or more, got (0, 1)"),
        ({"joint": "yes"}, "joint must be True or False, got 'yes'; write one of them, such as joint=True"),
        ({"joint": 1}, "joint must be True or False, got 1; write one of them"),
        ({"rates": ("0.1",)}, "rates must be a tuple of numbers, got ('0.1',); try rates=(0.5,)"),
        ({"rates": [1.0]}, "rates must be 0 or more and below 1, got (1.0,)"),
    ],
)
def test_options_of_another_type_are_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        Sizes(**values)


def test_lists_of_numbers_are_tuples_and_open_options_take_none() -> None:
    assert Sizes(width=2**53, seed=2**63 - 1).width == 2**53
    assert Sizes(filters=[2, 3]) == Sizes(filters=(2, 3))
    assert Sizes(feed=None, rates=None).rates is None
