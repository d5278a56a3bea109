"""Letters: pairs that are each other backwards, equal, or repeated as often as they say."""

import pytest

from regard.data.embedded.letters import (
    copy_of_length,
    copy_splits,
    repeat_copy_of_length,
    repeat_copy_splits,
    repeated,
    reverse_splits,
)


def test_targets_are_sources_backwards() -> None:
    parts = reverse_splits(train=5003, valid=101, test=211)
    for pairs in (parts.train, parts.valid, parts.test):
        assert [line[::-1] for line in pairs.source] == list(pairs.target)
    assert set("".join(parts.train.source)) == set("abcdefghijklmnopqrstuvwxyz")


def test_all_lengths_alike() -> None:
    lengths = [len(line) for line in reverse_splits(train=30_011).train.source]
    counts = [lengths.count(n) for n in range(1, 31)]
    assert counts[0] <= 26
    assert all(800 < count < 1300 for count in counts[3:])
    assert {len(line) for line in reverse_splits(train=7001, longest=5).test.source} <= {1, 2, 3, 4, 5}


def test_copies_are_their_sources() -> None:
    parts = copy_splits(train=5003, valid=101, test=211)
    every = [*parts.train.source, *parts.valid.source, *parts.test.source]
    assert parts.train.source == parts.train.target
    assert set("".join(every)) == set("abcdefghijklmnopqrstuvwxyz")
    lengths = [len(line) for line in every]
    assert all(200 < lengths.count(n) < 330 for n in range(3, 21))
    assert max(lengths) == 20
    assert max(map(len, copy_splits(train=5003, longest=4).train.source)) == 4


def test_the_digit_says_how_often() -> None:
    assert repeated("bca3") == "bcabcabca"
    parts = repeat_copy_splits(train=5003, valid=101, test=211, longest=7, repeats=3)
    every = [*parts.train.source, *parts.valid.source, *parts.test.source]
    assert [repeated(line) for line in parts.train.source] == list(parts.train.target)
    digits = [line[-1] for line in every]
    assert set(digits) == {"1", "2", "3"}
    assert all(1600 < digits.count(digit) < 1950 for digit in "123")
    assert {len(line) - 1 for line in every} == set(range(1, 8))


def test_new_sequences_of_one_length() -> None:
    pairs = copy_of_length(3, 101, 40, set())
    assert {len(line) for line in pairs.source} == {40}
    assert len(set(pairs.source)) == 101
    assert pairs.source == pairs.target
    # none that is known
    known = {line for line in copy_splits(3, 60_011, longest=4).train.source if len(line) == 4}
    again = copy_of_length(3, 50_021, 4, known)
    assert known.isdisjoint(again.source)
    repeats = repeat_copy_of_length(3, 11, 5, set(), repeats=7)
    assert {len(line) for line in repeats.target} == {35}
    assert [repeated(line) for line in repeats.source] == list(repeats.target)
    other = repeat_copy_of_length(3, 11, 5, {repeats.source[0]}, repeats=7)
    assert repeats.source[0] not in other.source


def test_sizes_that_cannot_be_are_told() -> None:
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0; try longest=20"):
        copy_splits(longest=0)
    with pytest.raises(ValueError, match="longest must be at most 2000, got 2001; try longest=20"):
        copy_splits(longest=2001)
    with pytest.raises(ValueError, match="length must be at most 2000, got 1000000000; try length=40"):
        copy_of_length(0, 1000, 10**9, set())
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0; try longest=10"):
        repeat_copy_splits(longest=0)
    with pytest.raises(ValueError, match="at most half of the 1404 sequences of up to 2 letters, got 712"):
        repeat_copy_splits(train=700, valid=1, test=11, longest=2, repeats=2)
    with pytest.raises(ValueError, match="repeats must be from 1 to 9, which is a digit, got 10; try repeats=5"):
        repeat_copy_splits(repeats=10)
    with pytest.raises(ValueError, match="repeats must be from 1 to 9, which is a digit, got 0"):
        repeat_copy_of_length(0, 3, 5, set(), repeats=0)
    for of_length, sizes in ((copy_of_length, {}), (repeat_copy_of_length, {"repeats": 2})):
        with pytest.raises(ValueError, match="length must be large enough for 1000 new sequences, got 2, of which"):
            of_length(0, 1000, 2, set(), **sizes)
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0; try longest=30"):
        reverse_splits(longest=0)
    with pytest.raises(
        ValueError, match="test must be at most half of the 702 sequences of up to 2 letters, got 352; raise"
    ):
        reverse_splits(train=340, valid=1, test=11, longest=2)
