"""Pairs of dates that name the same day."""

import pytest

from regard.data.embedded import same_day


def test_the_languages_of_a_pair_differ() -> None:
    pairs = same_day.splits(3, train=300, valid=40, test=50).train
    assert all(source != target for source, target in zip(pairs.source, pairs.target, strict=True))


def test_a_wrong_size() -> None:
    with pytest.raises(ValueError, match=r"test must be from 1 to 12,175 pairs, got 0; try test=1000"):
        same_day.splits(test=0)
