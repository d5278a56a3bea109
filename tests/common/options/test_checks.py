"""Checks of options that several tasks share."""

from dataclasses import dataclass

import pytest

from regard.common.options.checks import check_even_heads, check_top


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
    with pytest.raises(
        ValueError, match="width must split evenly over heads, got width=10 and heads=4; try width=8, or"
    ):
        check_even_heads(10, 4)
    with pytest.raises(ValueError, match="got width=3 and heads=4; try width=4, or another number of heads"):
        check_even_heads(3, 4)
