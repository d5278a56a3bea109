"""Intervals of shares and means hold their value and are never a single point."""

import math

import numpy as np
import pytest

from regard.metrics.answers import answer_scores
from regard.metrics.classification import accuracy_interval
from regard.metrics.intervals import mean_interval, nats_interval, share_interval
from regard.metrics.retrieval import reciprocal_rank_interval


def test_a_share_of_nothing_can_be_anything() -> None:
    assert share_interval(0, 0.0) == (0.0, 100.0)


def test_the_interval_of_a_mean_is_that_of_the_central_limit_theorem() -> None:
    values = np.random.default_rng(0).random(500)
    half = 196 * values.std(ddof=1) / math.sqrt(500)
    assert mean_interval(values) == pytest.approx((100 * values.mean() - half, 100 * values.mean() + half), rel=1e-3)
    assert mean_interval([0.0, 1.0]) == (0.0, 100.0)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 3, 1000])
def test_values_that_are_all_alike_are_not_certain(value: float, n: int) -> None:
    low, high = mean_interval([value] * n)
    assert (low, high) == pytest.approx(share_interval(n, value))
    assert 0 <= low <= 100 * value <= high <= 100
    assert low < high
    low, high = nats_interval([10 * value] * n)
    assert 0 <= low <= 10 * value <= high < math.inf
    assert low < high


def test_nats_that_differ_and_those_of_certain_answers() -> None:
    low, high = nats_interval([0.0, 0.1, 0.0, 3.0])
    assert low == 0 < 0.775 < high < math.inf
    few, many = (nats_interval([0.0] * n)[1] for n in (3, 3000))
    assert 0 < many < 0.01 < 0.5 < few
    # a probability that was cut off at 1e-300
    assert nats_interval([690.7755] * 3)[1] == pytest.approx(690.7755, abs=1e-3)


def test_every_right_and_every_wrong_answer() -> None:
    for predictions, wilson in ((["a b", "c", "d"], accuracy_interval([1] * 3, [1] * 3)), (["x"] * 3, (0, 56.15))):
        scores = answer_scores(predictions, [["a b"], ["c"], ["d"]])
        assert scores.exact_match_interval == scores.f1_interval == pytest.approx(wilson, abs=0.01)
    assert reciprocal_rank_interval(np.array([1, 1, 1])) == accuracy_interval([1] * 3, [1] * 3)


def test_the_interval_of_nats_has_no_mass_below_zero() -> None:
    """One bad example among many good ones: mean ± 1.96 s / √n would begin below 0."""
    nats = [0.001] * 40 + [4.5]
    low, high = nats_interval(nats)
    assert low == pytest.approx(0.001)
    assert 0.2 < high < 0.5
    rng = np.random.default_rng(0)
    few, many = rng.exponential(size=9_000), rng.exponential(size=11_000)
    for values in (few, many):
        half = 1.96 / math.sqrt(len(values))
        assert nats_interval(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.003)
