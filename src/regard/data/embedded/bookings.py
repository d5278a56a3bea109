"""Generated dialogues in which a table is booked, with the state after every turn of the user.  No torch here.

    Hello, I need a table.                                            {}
    Welcome back. Last time it was greek food in the north. What would you like to eat? Is italian fine?
    yes please.                                                       {food: italian}
    How many guests? I have two, four or six.
    the second one. what is the address?                              {…, people: four}         request: address
    The address comes with the letter. Which part of town?
    the same area as last time.                                       {…, area: north}
    On what day?
    not monday, this friday. no wait, somewhere in the centre.        {…, day: friday, area: centre}
    What may it cost?
    I do not mind.                                                    {…, price: dontcare}
    I found italian food, centre area, any price, four people, friday day. Shall I book it?

Values may be offered by the system and accepted by "yes", chosen among several by their order, taken from a turn long
before, corrected later, or left open: the state depends on the words of both, and a value that the user names need not
hold. The system asks for what is missing, so that its next turn shares few words with the dialogue, and sums up what is
known at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from regard.data.embedded._generated import check_counts, cut
from regard.data.splitting import Parts
from regard.data.tracking.dialogue import DONTCARE, Ontology, SystemAct, TrackedDialogue, build_turns

ONTOLOGY: dict[str, tuple[str, ...]] = {
    "food": ("thai", "italian", "indian", "french", "greek", "turkish", "korean", "mexican"),
    "area": ("north", "south", "east", "west", "centre"),
    "price": ("cheap", "moderate", "expensive"),
    "people": ("two", "three", "four", "five", "six"),
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
}
REQUESTS = ("address", "parking", "phone")
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
REMEMBERING = {
    "food": "{} food",
    "area": "in the {}",
    "price": "at {} prices",
    "people": "for {} people",
    "day": "on a {}",
}
WELCOMES = ("Welcome back. Last time it was {}.", "Good to see you again. Your last booking was {}.")
OFFERS = ("Is {} fine?", "Shall I take {}?", "Would {} do?")
CHOICES = ("I have {}.", "There is {}.", "You can have {}.")
ORDINALS = ("first", "second", "third")
CHOOSING = ("the {} one.", "the {} of these.", "I take the {}.")
REPEATING = ("the same {} as last time.", "the {} of last time, please.", "again the {} that I had.")
ACCEPTING = ("yes.", "yes please.", "sure, that is fine.")
OPEN = ("I do not mind.", "whatever you have.", "I have no preference.")
REQUESTING = {
    "address": ("what is the address?", "where do I find it?", "please send me the address."),
    "parking": ("can I park there?", "is there parking?", "we come by car, is that possible?"),
    "phone": ("what is the phone number?", "how can I call them?", "and their phone, please?"),
}
REPLYING = {
    "address": "The address comes with the letter.",
    "parking": "There is room for cars.",
    "phone": "The phone number is on the card.",
}
SUMMING = ("So that is {}. Shall I book it?", "I found {}. Shall I book it?", "Then it is {}. Is that right?")


class Booking(NamedTuple):
    """The turns of user and system, the user first; for every turn of the user the state after it, the acts of the
    system before it, and its requests."""

    turns: tuple[str, ...]
    states: tuple[Mapping[str, str], ...]
    acts: tuple[tuple[SystemAct, ...], ...]
    requests: tuple[tuple[str, ...], ...]


def splits(seed: int = 0, train: int = 1_500, valid: int = 200, test: int = 400) -> Parts[Sequence[Booking]]:
    """Dialogues, none twice; pure in its arguments."""
    check_counts(train=train, valid=valid, test=test)
    rng = np.random.default_rng(seed)
    dialogues: dict[tuple[str, ...], Booking] = {}
    while len(dialogues) < train + valid + test:
        booking = _Conversation(rng).booking()
        dialogues.setdefault(booking.turns, booking)
    return cut(list(dialogues.values()), valid, test)


def ontology() -> Ontology:
    """The slots, values and requests of all dialogues."""
    return Ontology(ONTOLOGY, REQUESTS)


def tracked(booking: Booking, name: str) -> TrackedDialogue:
    """The dialogue turn by turn; the summary of the system, which nobody answers, is left out."""
    systems, users = ("", *booking.turns[1:-1:2]), booking.turns[::2]
    informs = [
        {slot: value for slot, value in after.items() if before.get(slot) != value}
        for before, after in pairwise(({}, *booking.states))
    ]
    return TrackedDialogue(name, build_turns(zip(systems, booking.acts, users, informs, booking.requests, strict=True)))


@dataclass
class _Conversation:
    """A dialogue while it is made."""

    rng: np.random.Generator
    goal: dict[str, str] = field(init=False)
    remembered: dict[str, str] = field(init=False)
    state: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.goal = {slot: self._pick(values) for slot, values in ONTOLOGY.items()}
        slots = [list(ONTOLOGY)[n] for n in self.rng.permutation(len(ONTOLOGY))]
        count = int(self.rng.integers(2, 4)) if self.rng.random() < 0.5 else 0
        self.remembered = {slot: self._pick(values) for slot, values in ONTOLOGY.items() if slot in slots[:count]}

    def booking(self) -> Booking:
        order = [list(ONTOLOGY)[n] for n in self.rng.permutation(len(ONTOLOGY))]
        turns, states = [self._pick(GREETINGS)], [{**self.state}]
        acts: list[tuple[SystemAct, ...]] = [()]
        requests: list[tuple[str, ...]] = [()]
        while missing := [slot for slot in order if slot not in self.state]:
            slot = missing[0]
            opening, before = self._opening(len(states) == 1, requests[-1])
            system, named, said = self._exchange(slot, missing[1:])
            turns.append(" ".join([*opening, system]))
            acts.append((*before, *named))
            said += self._correction(slot)
            asked = self._pick(REQUESTS) if self.rng.random() < 0.2 else None
            requests.append(() if asked is None else (asked,))
            turns.append(said if asked is None else f"{said} {self._pick(REQUESTING[asked])}")
            states.append({**self.state})
        replies, _ = self._opening(False, requests[-1])
        turns.append(" ".join([*replies, self._pick(SUMMING).format(_summary(self.state))]))
        return Booking(tuple(turns), tuple(states), tuple(acts), tuple(requests))

    def _opening(self, is_first: bool, requests: Sequence[str]) -> tuple[list[str], list[SystemAct]]:
        """The sentences of the system before its question: the booking of last time, and replies."""
        replies = [REPLYING[request] for request in requests]
        if not is_first or not self.remembered:
            return replies, []
        phrases = [REMEMBERING[slot].format(value) for slot, value in self.remembered.items()]
        welcome = self._pick(WELCOMES).format(" ".join(phrases))
        return [*replies, welcome], [SystemAct(slot, value) for slot, value in self.remembered.items()]

    def _exchange(self, slot: str, others: Sequence[str]) -> tuple[str, list[SystemAct], str]:
        """A question of the system, its acts, and the answer of the user, which changes the state."""
        question, asked = self._pick(ASKING[slot]), SystemAct(slot)
        value, draw = self.goal[slot], self.rng.random()
        if slot in self.remembered and draw < 0.5:
            self.state[slot] = self.remembered[slot]
            return question, [asked], self._pick(REPEATING).format(slot)
        if draw < 0.22:
            # the value stands in the words of the system alone
            offered = self._pick(ONTOLOGY[slot])
            system, acts = f"{question} {self._pick(OFFERS).format(offered)}", [SystemAct(slot, offered)]
            if self.rng.random() < 0.6:
                self.state[slot] = offered
                return system, acts, self._pick(ACCEPTING)
            self.state[slot] = value
            refused = f"no, not {offered}" if offered != value and self.rng.random() < 0.5 else "no"
            return system, acts, f"{refused}, {self._name(slot, value)}."
        if draw < 0.4:
            # the value is one of several, by its order
            values = [ONTOLOGY[slot][n] for n in self.rng.permutation(len(ONTOLOGY[slot]))[: len(ORDINALS)]]
            place = int(self.rng.integers(len(values)))
            self.state[slot] = values[place]
            listed = f"{', '.join(values[:-1])} or {values[-1]}"
            system = f"{question} {self._pick(CHOICES).format(listed)}"
            ordinal = "last" if place == len(values) - 1 and self.rng.random() < 0.5 else ORDINALS[place]
            return system, [SystemAct(slot, each) for each in values], self._pick(CHOOSING).format(ordinal)
        if draw < 0.53:
            self.state[slot] = DONTCARE
            return question, [asked], self._pick(OPEN)
        said = self._name(slot, value)
        if self.rng.random() < 0.15:
            said = f"not {self._pick([other for other in ONTOLOGY[slot] if other != value])}, {said}"
        self.state[slot] = value
        if others and self.rng.random() < 0.4:
            said = f"{said}, {self._name(others[0], self.goal[others[0]])}"
            self.state[others[0]] = self.goal[others[0]]
        return question, [asked], f"{said}."

    def _correction(self, slot: str) -> str:
        """Another value for a slot that is known already."""
        changeable = [other for other, value in self.state.items() if other != slot and value != DONTCARE]
        if not changeable or self.rng.random() >= 0.25:
            return ""
        corrected = self._pick(changeable)
        value = self._pick([value for value in ONTOLOGY[corrected] if value != self.state[corrected]])
        self.state[corrected] = value
        return f" no wait, {self._name(corrected, value)}."

    def _name(self, slot: str, value: str) -> str:
        return self._pick(NAMING[slot]).format(value)

    def _pick(self, choices: Sequence[str]) -> str:
        return choices[int(self.rng.integers(len(choices)))]


def _summary(state: Mapping[str, str]) -> str:
    """All slots in the order of the ontology, such as: thai food, any area."""
    return ", ".join(f"{'any' if state[slot] == DONTCARE else state[slot]} {slot}" for slot in ONTOLOGY)
