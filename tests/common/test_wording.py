"""Durations and scores in sentences."""

import pytest

from regard.common.wording import clock, number


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3599.4, "59:59"), (3600, "1:00:00")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.00"), (97.123, "97.12"), (0.00123456, "0.001235"), (9.5, "9.5")])
def test_number(value: float, text: str) -> None:
    assert number(value) == text
