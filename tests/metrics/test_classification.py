"""Metrics of classification beside scikit-learn and scipy, which nobody here wrote."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from regard.metrics.classification import (
    METRICS,
    accuracy,
    accuracy_interval,
    macro_f1,
    macro_f1_interval,
    nll,
    nll_interval,
)

sklearn_metrics = pytest.importorskip("sklearn.metrics")

classes = st.integers(0, 4)
pairs = st.lists(st.tuples(classes, classes), min_size=1, max_size=50)


@given(pairs)
def test_accuracy_and_macro_f1_are_those_of_scikit_learn(rows: list[tuple[int, int]]) -> None:
    predictions, references = map(list, zip(*rows, strict=True))
    assert accuracy(predictions, references) == pytest.approx(
        100 * sklearn_metrics.accuracy_score(references, predictions)
    )
    assert macro_f1(predictions, references) == pytest.approx(
        100 * sklearn_metrics.f1_score(references, predictions, average="macro", zero_division=0)
    )


def test_classes_may_be_names() -> None:
    predictions, references = ["a", "b", "b", "c"], ["a", "b", "c", "c"]
    assert accuracy(predictions, references) == 75.0
    assert macro_f1(predictions, references) == pytest.approx(
        100 * sklearn_metrics.f1_score(references, predictions, average="macro")
    )


def drawn(n: int, k: int = 3) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    draw = np.random.default_rng(0)
    p = draw.dirichlet(np.ones(k), n)
    return p, draw.integers(0, k, n)


def test_nll_is_the_log_loss_of_scikit_learn() -> None:
    p, references = drawn(101)
    assert nll(p, references) == pytest.approx(sklearn_metrics.log_loss(references, p, labels=range(3)))
    assert nll([[0.0, 1.0]], [0]) == pytest.approx(300 * np.log(10))


@pytest.mark.parametrize(("right", "n"), [(0, 7), (1, 1), (5, 7), (89, 97), (97, 97), (1, 1000)])
def test_the_interval_of_accuracy_is_wilson_s(right: int, n: int) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    want = scipy_stats.binomtest(right, n).proportion_ci(method="wilson")
    got = accuracy_interval([1] * n, [1] * right + [0] * (n - right))
    np.testing.assert_allclose(got, (100 * want.low, 100 * want.high), rtol=1e-9, atol=1e-9)
    assert got[0] <= 100 * right / n <= got[1]


def test_the_interval_of_macro_f1_is_that_of_resampled_examples() -> None:
    p, references = drawn(211)
    predictions = np.where(np.arange(211) % 3, references, p.argmax(-1))
    low, high = macro_f1_interval(predictions, references)
    assert low < macro_f1(predictions, references) < high
    assert (low, high) == macro_f1_interval(predictions, references)
    assert (low, high) != macro_f1_interval(predictions, references, seed=1)
    draw = np.random.default_rng(5)
    scores = []
    for _ in range(500):
        index = draw.integers(0, 211, 211)
        scores.append(100 * sklearn_metrics.f1_score(references[index], predictions[index], average="macro"))
    np.testing.assert_allclose((low, high), np.quantile(scores, (0.025, 0.975)), atol=1.0)


def test_nothing_wrong_is_not_certain() -> None:
    """Resamples of examples that are all right are all right: the interval of macro F1 must not be one point."""
    few, many = (macro_f1_interval([0, 1] * n, [0, 1] * n) for n in (5, 500))
    assert few[1] == many[1] == 100.0
    assert few[0] == pytest.approx(accuracy_interval([0] * 5, [0] * 5)[0])
    assert few[0] < 60 < 99 < many[0] < 100
    # a rare class makes it wider
    assert macro_f1_interval([0] * 98 + [1] * 2, [0] * 98 + [1] * 2)[0] < macro_f1_interval([0, 1] * 50, [0, 1] * 50)[0]
    assert macro_f1_interval([1, 0] * 5, [0, 1] * 5) == (0.0, pytest.approx(100 - few[0]))


def test_every_metric_has_a_direction() -> None:
    p, references = drawn(50)
    for name, (metric, higher_is_better) in METRICS.items():
        best = metric(np.eye(3)[references] if name == "nll" else references, references)
        other = metric(p if name == "nll" else p.argmax(-1), references)
        assert (best > other) == higher_is_better, name


@pytest.mark.parametrize("metric", [accuracy, macro_f1, accuracy_interval, macro_f1_interval])
@pytest.mark.parametrize(("predictions", "references"), [([0], [0, 1]), ([], []), ([[0]], [[0]])])
def test_rows_that_do_not_match_are_told(metric: object, predictions: list[int], references: list[int]) -> None:
    with pytest.raises(ValueError, match="predictions and references must be one class per example, got .* give as"):
        metric(predictions, references)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("p", "references", "sentence"),
    [
        (
            [0.5, 0.5],
            [0],
            r"probabilities must be \(examples, classes\) with one reference each, got \(2,\) and \(1,\)",
        ),
        ([[0.5, 0.5]], [2], "references must be classes from 0 to 1, got 2 to 2; give every class a column"),
        ([[0.5, 0.5]], [-1], "references must be classes from 0 to 1, got -1 to -1"),
        ([[0.5, 0.5]], [0.5], "references must be classes from 0 to 1, got 0.5 to 0.5"),
    ],
)
def test_probabilities_that_do_not_fit_are_told(p: list[float], references: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        nll(p, references)


def test_the_interval_of_nll_is_that_of_a_mean() -> None:
    """A bootstrap of many examples is mean ± 1.96 standard errors."""
    p = np.random.default_rng(3).dirichlet([1.0, 2.0, 3.0], 4000)
    references = np.arange(4000) % 3
    nats = -np.log(p[np.arange(4000), references])
    low, high = nll_interval(p, references)
    assert (low + high) / 2 == pytest.approx(nll(p, references), rel=1e-2)
    assert (high - low) / 2 == pytest.approx(1.96 * nats.std() / np.sqrt(4000), rel=0.1)
    low, high = nll_interval([[0.5, 0.5]], [0])
    assert 0 < low < np.log(2) < high < np.inf
