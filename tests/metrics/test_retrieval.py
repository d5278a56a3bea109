"""Ranks with ties against the model, recall and reciprocal ranks, against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import label_ranking_average_precision_score, top_k_accuracy_score

from regard.metrics.intervals import share_interval
from regard.metrics.retrieval import (
    mean_reciprocal_rank,
    ranks,
    recall_at,
    recall_interval,
    reciprocal_rank_interval,
    without_other_right,
)


def test_ties_and_nan_count_against_the_model() -> None:
    scores = [[0.1, 0.9, 0.5], [0.5, 0.5, 0.5], [np.nan, 0.2, 0.1], [0.1, np.nan, 0.3]]
    assert ranks(scores, [1, 0, 1, 1]).tolist() == [1, 3, 2, 3]


def test_against_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    # few different scores, so there are ties
    scores, right = draw.integers(0, 6, (40, 11)) / 5, draw.integers(0, 11, 40)
    found = ranks(scores, right)
    one_hot = np.eye(11)[right]
    assert mean_reciprocal_rank(found) == pytest.approx(100 * label_ranking_average_precision_score(one_hot, scores))
    distinct = draw.random((40, 11))
    for k in (1, 3):
        expected = 100 * top_k_accuracy_score(right, distinct, k=k, labels=range(11))
        assert recall_at(ranks(distinct, right), k) == pytest.approx(expected)


def test_intervals_hold_their_scores() -> None:
    found = np.array([1, 1, 2, 5, 1, 9])
    for low_high, value in (
        (recall_interval(found, 1), recall_at(found, 1)),
        (reciprocal_rank_interval(found), mean_reciprocal_rank(found)),
    ):
        assert low_high[0] < value < low_high[1]
    assert reciprocal_rank_interval(np.array([2])) == share_interval(1, 0.5)
    assert reciprocal_rank_interval(np.array([1, 1, 1, 1, 9]))[1] == 100


def test_other_right_candidates_are_no_rivals() -> None:
    scores, right = np.array([[0.5, 0.5, 0.1], [0.2, 0.9, 0.3]]), [0, 2]
    found = without_other_right(scores, right, [np.array([0, 1]), np.array([2])])
    assert found.tolist() == [[0.5, -np.inf, 0.1], [0.2, 0.9, 0.3]]
    assert ranks(found, right).tolist() == [1, 2]
    assert ranks(scores, right).tolist() == [2, 2], "the scores are left as they are"


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"scores must be \(queries, candidates\) with one right candidate per query"):
        ranks([[1.0, 2.0]], [0, 1])
    with pytest.raises(ValueError, match="right must be candidates from 0 to 1, got 2 to 2"):
        ranks([[1.0, 2.0]], [2])
