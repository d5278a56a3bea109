"""Dialogues of bookings: states that follow from the words, separate parts, values of the system."""

from regard.data.embedded import bookings
from regard.data.embedded.bookings import ONTOLOGY, ORDINALS
from regard.data.tracking.dialogue import DONTCARE
from regard.data.tracking.mentions import MentionFinder

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


def test_tracked_dialogues_have_the_same_states() -> None:
    finder, ontology = MentionFinder(bookings.ontology()), bookings.ontology()
    for booking in SPLITS.test:
        turns = bookings.tracked(booking, "a").turns
        assert [turn.state for turn in turns] == list(booking.states)
        assert [turn.user for turn in turns] == list(booking.turns[::2])
        assert turns[0].system == ""
        for turn in turns:
            ontology.check_turn(turn)
            # the values among the acts are those in the words of the system, in their order
            acts, found = ([act for act in each if act.value] for each in (turn.acts, finder.acts(turn.system)))
            assert acts == found


def test_references_to_the_words_of_the_system() -> None:
    """A chosen value is that of its order, and a repeated one is that of the first words of the system."""
    chosen = repeated = asked = 0
    for booking in SPLITS.train:
        turns = bookings.tracked(booking, "a").turns
        for turn in turns:
            asked += len(turn.requests)
            for place, ordinal in enumerate((*ORDINALS, "last")):
                if f"the {ordinal}" in turn.user and "last time" not in turn.user:
                    act = turn.acts[-len(ORDINALS) :][min(place, len(ORDINALS) - 1)]
                    assert turn.informs[act.slot] == act.value
                    chosen += 1
            if "last time" in turn.user or "that I had" in turn.user:
                slot = next(slot for slot in ONTOLOGY if f"{slot} " in turn.user)
                assert (slot, turn.informs[slot]) in turns[1].acts
                repeated += 1
    assert min(chosen, repeated, asked) > len(SPLITS.train) / 4


def test_string_matching_is_not_enough() -> None:
    finder = MentionFinder(bookings.ontology())
    right = []
    for booking in SPLITS.test:
        state: dict[str, str] = {}
        for turn in bookings.tracked(booking, "a").turns:
            state |= finder.informs(turn.user)
            right.append(state == turn.state)
    assert sum(right) / len(right) < 0.5
