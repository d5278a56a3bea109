"""Pairs of dates that name the same day."""

import pytest

from regard.data.embedded import same_day


def test_splits() -> None:
    splits = same_day.splits(3, train=300, valid=40, test=50)
    again = same_day.splits(3, train=200, valid=40, test=50)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (300, 40, 50)
    assert again.test == splits.test, "the test does not depend on the size of the training part"
    assert all(source != target for source, target in zip(splits.train.source, splits.train.target, strict=True))
    assert same_day.splits(4, train=5, valid=5, test=5).test != same_day.splits(3, train=5, valid=5, test=5).test


def test_a_wrong_size() -> None:
    with pytest.raises(ValueError, match=r"test must be from 1 to 12,175 pairs, got 0; try test=1000"):
        same_day.splits(test=0)
