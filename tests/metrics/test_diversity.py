"""Variety of generated texts: n-grams over all of them, and the most common one."""

import pytest

from regard.metrics.diversity import distinct, most_common_share


def test_distinct_counts_over_all_texts() -> None:
    texts = [["a", "b", "a"], ["a", "b"], []]
    assert distinct(texts, 1) == pytest.approx(100 * 2 / 5)
    # per word, as Li et al. 2016 define it, not per pair of words
    assert distinct(texts, 2) == pytest.approx(100 * 2 / 5)
    assert distinct(texts, 4) == distinct([], 1) == 0.0
    # not the mean over texts
    assert distinct([["a"], ["a"]], 1) == pytest.approx(50)


def test_the_most_common_text() -> None:
    assert most_common_share(["x", "y", "x", "z"]) == (50.0, "x")
    with pytest.raises(ValueError, match="texts must be one text or more, got none; generate some first"):
        most_common_share([])
