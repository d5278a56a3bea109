"""Checks of options that several tasks share."""

from dataclasses import dataclass

import pytest

from regard.common.option_checks import check_top


@dataclass
class Options:
    top: int


def test_no_more_classes_than_there_are() -> None:
    check_top(Options(10), 10)
    with pytest.raises(ValueError, match="--top 99 exceeds the 10 classes of this run; try --top 10"):
        check_top(Options(99), 10)
