"""Paired tests: McNemar's by scipy's binomial test, the bootstrap by its laws."""

import numpy as np
import pytest

from regard.metrics.paired import mcnemar, paired_bootstrap


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (5, 5), (3, 11), (40, 17), (600, 500)])
def test_mcnemar_is_the_binomial_test(b: int, c: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    first = np.array([True] * b + [False] * c + [True] * 7 + [False] * 3)
    second = np.array([False] * b + [True] * c + [True] * 7 + [False] * 3)
    expected = stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(second, first) == mcnemar(first, second)


def test_the_bootstrap() -> None:
    random = np.random.default_rng(0)
    first = random.uniform(0, 100, 300)
    assert paired_bootstrap(first, first) == (0.0, (0.0, 0.0), 1.0)
    difference, (low, high), p = paired_bootstrap(first, first + random.normal(2, 5, 300))
    assert low < difference < high
    assert low > 0
    assert p < 0.01
    noise = random.normal(0, 5, 300)
    other, (low, high), p = paired_bootstrap(first, first + noise - noise.mean())
    assert low < other < high
    assert p > 0.5
    normal = 1.96 * noise.std() / 300**0.5
    assert (high - low) / 2 == pytest.approx(normal, rel=0.1)


def test_examples_must_be_the_same() -> None:
    for first, second in (([1], [1, 0]), ([], []), ([[1]], [[1]])):
        with pytest.raises(
            ValueError, match=r"first and second must be numbers of the same examples, got shapes .*; give"
        ):
            mcnemar(first, second)
