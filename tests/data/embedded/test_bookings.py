"""Dialogues of bookings: states that follow from the words, separate parts, values of the system."""

import pytest

from regard.data.embedded import bookings
from regard.data.embedded.bookings import DONTCARE, ONTOLOGY

SPLITS = bookings.splits(1, train=200, valid=20, test=60)


def test_turns_and_states() -> None:
    for booking in SPLITS.test:
        assert len(booking.turns) == 2 * len(booking.states)
        assert set(booking.states[-1]) == set(ONTOLOGY)
        for before, after in zip(booking.states, booking.states[1:], strict=False):
            assert before.keys() <= after.keys()
        # the summary has every value that holds
        final = booking.turns[-1]
        assert all(value in final for value in booking.states[-1].values() if value != DONTCARE)


def test_the_words_of_the_user_alone_are_not_enough() -> None:
    missing = changed = 0
    for booking in SPLITS.train:
        said = " ".join(booking.turns[::2])
        missing += any(value != DONTCARE and value not in said for value in booking.states[-1].values())
        changed += "no wait" in said
    assert missing > len(SPLITS.train) / 4
    assert changed > len(SPLITS.train) / 4


def test_parts_are_pure_and_separate() -> None:
    parts = [{booking.turns for booking in part} for part in (SPLITS.train, SPLITS.valid, SPLITS.test)]
    assert [len(part) for part in parts] == [200, 20, 60]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert bookings.splits(1, train=3, valid=20, test=60).test == SPLITS.test
    assert bookings.splits(2, train=3, valid=20, test=60).test != SPLITS.test
    with pytest.raises(ValueError, match="valid must be 1 or more, got 0; try valid=1000"):
        bookings.splits(valid=0)
