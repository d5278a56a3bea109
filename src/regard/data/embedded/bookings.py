"""Generated dialogues in which a table is booked, with the state after every turn of the user.  No torch here.

    Hello, I need a table.                                          {}
    What would you like to eat? Is italian fine?
    yes please.                                                     {food: italian}
    How many guests?
    I do not mind.                                                  {…, people: dontcare}
    On what day?
    this friday.                                                    {…, day: friday}
    What may it cost?
    cheap prices, the north part. no wait, somewhere in the centre. {…, price: cheap, area: centre}
    I found italian food, centre area, cheap price, any people, friday day. Shall I book it?

Values may be offered by the system and accepted by "yes", corrected later, or left open: the state depends on the words
of both. The system asks for what is missing, so that its next turn shares few words with the dialogue, and sums up what
is known at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

DONTCARE = "dontcare"
ONTOLOGY: dict[str, tuple[str, ...]] = {
    "food": ("thai", "italian", "indian", "french", "greek", "turkish", "korean", "mexican"),
    "area": ("north", "south", "east", "west", "centre"),
    "price": ("cheap", "moderate", "expensive"),
    "people": ("two", "three", "four", "five", "six"),
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
}
GREETINGS = ("I want to book a table.", "Hello, I need a table.", "Could you find me a restaurant?", "A table, please.")
ASKING = {
    "food": ("What kind of food?", "Which kitchen do you like?", "What would you like to eat?"),
    "area": ("Which part of town?", "Where should it be?", "In which area?"),
    "price": ("Which price range?", "What may it cost?", "Which budget?"),
    "people": ("For how many people?", "How many guests?", "How large is the party?"),
    "day": ("Which day?", "When would you come?", "On what day?"),
}
NAMING = {
    "food": ("{} food", "a {} place", "something {}"),
    "area": ("in the {}", "somewhere in the {}", "the {} part"),
    "price": ("something {}", "a {} one", "{} prices"),
    "people": ("for {}", "{} people", "we are {}"),
    "day": ("on {}", "{} would be good", "this {}"),
}
OFFERS = ("Is {} fine?", "Shall I take {}?", "Would {} do?")
ACCEPTING = ("yes.", "yes please.", "sure, that is fine.")
OPEN = ("I do not mind.", "whatever you have.", "I have no preference.")
SUMMING = ("So that is {}. Shall I book it?", "I found {}. Shall I book it?", "Then it is {}. Is that right?")


class Booking(NamedTuple):
    """The turns of user and system, the user first, and the state after every turn of the user."""

    turns: tuple[str, ...]
    states: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class BookingSplits:
    """Dialogues to train on, to choose the best weights by, and to test on: none is in two parts."""

    train: Sequence[Booking]
    valid: Sequence[Booking]
    test: Sequence[Booking]


def splits(seed: int = 0, train: int = 1_500, valid: int = 200, test: int = 400) -> BookingSplits:
    """Dialogues, none twice; pure in its arguments."""
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}; try {name}=1000")
    rng = np.random.default_rng(seed)
    dialogues: dict[tuple[str, ...], Booking] = {}
    while len(dialogues) < train + valid + test:
        booking = _dialogue(rng)
        dialogues.setdefault(booking.turns, booking)
    # the first are for the test, which therefore does not depend on how many are trained on
    ends = (0, test, test + valid, len(dialogues))
    every = list(dialogues.values())
    tested, validated, trained = (every[start:end] for start, end in pairwise(ends))
    return BookingSplits(trained, validated, tested)


def _dialogue(rng: np.random.Generator) -> Booking:
    goal = {slot: _pick(values, rng) for slot, values in ONTOLOGY.items()}
    order = [list(ONTOLOGY)[n] for n in rng.permutation(len(ONTOLOGY))]
    state: dict[str, str] = {}
    turns, states = [_pick(GREETINGS, rng)], [{**state}]
    while missing := [slot for slot in order if slot not in state]:
        slot = missing[0]
        question = _pick(ASKING[slot], rng)
        draw = rng.random()
        if draw < 0.25:
            # the value stands in the words of the system alone
            offered = _pick(ONTOLOGY[slot], rng)
            turns.append(f"{question} {_pick(OFFERS, rng).format(offered)}")
            if rng.random() < 0.6:
                said, value = _pick(ACCEPTING, rng), offered
            else:
                said, value = f"no, {_name(slot, goal[slot], rng)}.", goal[slot]
            state[slot] = value
        elif draw < 0.4:
            turns.append(question)
            said, state[slot] = _pick(OPEN, rng), DONTCARE
        else:
            turns.append(question)
            said, state[slot] = f"{_name(slot, goal[slot], rng)}.", goal[slot]
            if len(missing) > 1 and rng.random() < 0.4:
                more = missing[1]
                said = f"{said[:-1]}, {_name(more, goal[more], rng)}."
                state[more] = goal[more]
        known = [other for other, value in state.items() if other != slot and value != DONTCARE]
        if known and rng.random() < 0.25:
            corrected = _pick(tuple(known), rng)
            other = _pick(tuple(value for value in ONTOLOGY[corrected] if value != state[corrected]), rng)
            said += f" no wait, {_name(corrected, other, rng)}."
            state[corrected] = other
        turns.append(said)
        states.append({**state})
    turns.append(_pick(SUMMING, rng).format(_summary(state)))
    return Booking(tuple(turns), tuple(states))


def _summary(state: Mapping[str, str]) -> str:
    parts = [
        f"{'any' if state[slot] == DONTCARE else state[slot]} {noun}"
        for slot, noun in (("food", "food"), ("area", "area"), ("price", "price"), ("people", "people"), ("day", "day"))
    ]
    return ", ".join(parts)


def _name(slot: str, value: str, rng: np.random.Generator) -> str:
    return _pick(NAMING[slot], rng).format(value)


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
