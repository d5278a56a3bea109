"""Reversal: pairs that are each other backwards, none of them twice."""

import pytest

from regard.data.embedded.reverse import splits


def test_targets_are_sources_backwards_and_none_is_in_two_parts() -> None:
    parts = splits(train=5003, valid=101, test=211)
    assert [len(pairs) for pairs in (parts.train, parts.valid, parts.test)] == [5003, 101, 211]
    every = [*parts.train.source, *parts.valid.source, *parts.test.source]
    assert len(set(every)) == len(every)
    for pairs in (parts.train, parts.valid, parts.test):
        assert [line[::-1] for line in pairs.source] == list(pairs.target)
    assert set("".join(every)) == set("abcdefghijklmnopqrstuvwxyz")


def test_all_lengths_alike() -> None:
    lengths = [len(line) for line in splits(train=30_011).train.source]
    counts = [lengths.count(n) for n in range(1, 31)]
    assert counts[0] <= 26
    assert all(800 < count < 1300 for count in counts[3:])
    assert {len(line) for line in splits(train=7001, longest=5).test.source} <= {1, 2, 3, 4, 5}


def test_splits_are_a_pure_function() -> None:
    assert splits(7, 101, 11, 13) == splits(7, 101, 11, 13)
    assert splits(7, 101, 11, 13) != splits(8, 101, 11, 13)
    # what is tested does not depend on how much is learnt
    assert splits(7, 20_011, 17, 13).test == splits(7, 101, 11, 13).test


def test_sizes_that_cannot_be_are_told() -> None:
    with pytest.raises(ValueError, match="test must be 1 or more, got 0; try test=1000"):
        splits(test=0)
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0; try longest=30"):
        splits(longest=0)
    with pytest.raises(
        ValueError,
        match=r"train \+ valid \+ test must be at most half of the 702 sequences of up to 2 letters, got 352; "
        "raise longest=2 or ask for fewer",
    ):
        splits(train=340, valid=1, test=11, longest=2)
