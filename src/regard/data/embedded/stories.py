"""Stories of a small world of people, places and things, with one question each.  No torch here.

    Mary went to the garden. Mary took the ball. John went to the park. Mary moved to the office.
    Where is the ball?                                                               -> office, supported by 2 and 4

`TASKS` are kinds of questions, each with stories of its own: they need one, two or three sentences of the story, which
`support` numbers. Where a person or a thing is, the last place that the story names is right half the time. No story
occurs twice, in any part of any task.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from regard.data.embedded._generated import check_counts, cut
from regard.data.questions.babi import Question, QuestionSplits

PEOPLE = ("Mary", "John", "Sandra", "Daniel", "Julie")
PLACES = ("garden", "office", "kitchen", "park", "school", "cinema")
THINGS = ("ball", "book", "apple", "lamp")
MOVES = ("went to", "moved to", "walked to", "hurried to")
TAKES = ("took", "picked up")
DROPS = ("dropped", "put down")
NUMBERS = ("none", "one", "two", "three", "four")
LENGTHS = range(6, 13)
# questions that are tried about one story
_TRIES = 6


@dataclass
class World:
    """The state of a story: who is where, with the sentences that say so."""

    sentences: list[str] = field(default_factory=list)
    # the places that a person has been at, with their sentences; None: the person left, and the place is unknown
    visits: dict[str, list[tuple[str | None, int]]] = field(default_factory=lambda: {each: [] for each in PEOPLE})
    # the holder of a thing, None if it was dropped, with the sentence that says so
    holders: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    # the places that a thing has been at, with the sentences that say so
    journeys: dict[str, list[tuple[str, tuple[int, ...]]]] = field(default_factory=lambda: {e: [] for e in THINGS})
    changes: dict[str, list[int]] = field(default_factory=lambda: {each: [] for each in PEOPLE})
    gifts: list[tuple[str, str, str, int]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> int:
        self.sentences.append(sentence)
        return len(self.sentences) - 1

    def place(self, person: str) -> tuple[str | None, int]:
        return self.visits[person][-1] if self.visits[person] else (None, -1)

    def carried(self, person: str) -> list[str]:
        return [thing for thing, (holder, _) in self.holders.items() if holder == person]

    def move(self, person: str, place: str, verb: str) -> None:
        n = self.say(f"{person} {verb} the {place}.")
        self.visits[person].append((place, n))
        self.named.append(place)
        for thing in self.carried(person):
            self._locate(thing, place, (self.holders[thing][1], n))

    def leave(self, person: str) -> None:
        place, _ = self.place(person)
        n = self.say(f"{person} is no longer in the {place}.")
        self.visits[person].append((None, n))
        self.named.append(str(place))

    def take(self, person: str, thing: str, verb: str) -> None:
        n = self.say(f"{person} {verb} the {thing}.")
        self.holders[thing] = person, n
        self.changes[person].append(n)
        place, at = self.place(person)
        if place is not None:
            self._locate(thing, place, (n, at))

    def drop(self, person: str, thing: str, verb: str) -> None:
        n = self.say(f"{person} {verb} the {thing}.")
        self.holders[thing] = None, n
        self.changes[person].append(n)
        place, at = self.place(person)
        if place is not None:
            self._locate(thing, place, (n, at))

    def give(self, person: str, thing: str, other: str) -> None:
        n = self.say(f"{person} gave the {thing} to {other}.")
        self.holders[thing] = other, n
        self.changes[person].append(n)
        self.changes[other].append(n)
        self.gifts.append((person, thing, other, n))
        # the giver meets the receiver, so both are at the same place
        place, at = self.place(person)
        if place is not None:
            self._locate(thing, place, (n, at))

    def _locate(self, thing: str, place: str, support: tuple[int, ...]) -> None:
        journey = self.journeys[thing]
        if journey and journey[-1][0] == place:
            journey[-1] = place, support
        else:
            journey.append((place, support))


# the question about a world, its answer and the sentences that support it; None: this world does not answer one
Asked = tuple[str, str, tuple[int, ...]]
Ask = Callable[[World, random.Random], Asked | None]


def _ask_person(world: World, rng: random.Random) -> Asked | None:
    person = rng.choice(PEOPLE)
    place, n = world.place(person)
    return None if place is None else (f"Where is {person}?", place, (n,))


def _ask_thing(world: World, rng: random.Random) -> Asked | None:
    thing = rng.choice(THINGS)
    if not world.journeys[thing]:
        return None
    holder, _ = world.holders[thing]
    if holder is not None and world.place(holder)[0] is None:
        return None
    place, support = world.journeys[thing][-1]
    return f"Where is the {thing}?", place, support


def _ask_before(world: World, rng: random.Random) -> Asked | None:
    thing = rng.choice(THINGS)
    journey = world.journeys[thing]
    if len(journey) < 2:
        return None
    (place, support), (later, after) = journey[-2:]
    if any(each == later for each, _ in journey[:-1]):
        return None
    return f"Where was the {thing} before the {later}?", place, tuple(sorted({*support, *after}))


def _ask_giver(world: World, rng: random.Random) -> Asked | None:
    if not world.gifts:
        return None
    giver, thing, other, n = rng.choice(world.gifts)
    if sum(gift[1:3] == (thing, other) for gift in world.gifts) > 1:
        return None
    return f"Who gave the {thing} to {other}?", giver, (n,)


def _ask_whether(world: World, rng: random.Random) -> Asked | None:
    person = rng.choice(PEOPLE)
    if not world.visits[person]:
        return None
    place, n = world.place(person)
    if place is None:
        # the only place that is known not to be the person's
        return f"Is {person} in the {world.visits[person][-2][0]}?", "no", (n,)
    asked = place if rng.random() < 0.6 else rng.choice(PLACES)
    return f"Is {person} in the {asked}?", "yes" if asked == place else "no", (n,)


def _ask_number(world: World, rng: random.Random) -> Asked | None:
    person = rng.choice(PEOPLE)
    if not world.changes[person]:
        return None
    count = len(world.carried(person))
    return f"How many things is {person} carrying?", NUMBERS[count], tuple(world.changes[person])


@dataclass(frozen=True)
class _Kind:
    ask: Ask
    # the weights of move, leave, take, drop and give
    events: tuple[float, float, float, float, float]
    # whether the last place named is the answer to every other question
    is_balanced: bool = False


TASKS: dict[str, _Kind] = {
    "person": _Kind(_ask_person, (6, 1, 2, 1, 0), is_balanced=True),
    "thing": _Kind(_ask_thing, (5, 0, 3, 1, 0.5), is_balanced=True),
    "before": _Kind(_ask_before, (6, 0, 2, 1, 0)),
    "giver": _Kind(_ask_giver, (3, 0, 3, 0.5, 3)),
    "whether": _Kind(_ask_whether, (5, 3, 1, 1, 0)),
    "number": _Kind(_ask_number, (1, 0, 5, 2, 2)),
}


def splits(seed: int = 0, train: int = 2_000, valid: int = 300, test: int = 500) -> dict[str, QuestionSplits]:
    """Questions of every task, each with a story of its own; pure in its arguments."""
    check_counts(train=train, valid=valid, test=test)
    used: set[tuple[str, ...]] = set()
    parts: dict[str, QuestionSplits] = {}
    for name, kind in TASKS.items():
        rng = random.Random(f"{name} {seed}")
        questions: list[Question] = []
        while len(questions) < train + valid + test:
            question = _question(kind, len(questions), rng)
            if question.sentences not in used:
                used.add(question.sentences)
                questions.append(question)
        parts[name] = cut(questions, valid, test)
    return parts


def _question(kind: _Kind, number: int, rng: random.Random) -> Question:
    """A story with a question; in every other one about places, the last place named is the answer."""
    while True:
        world = World()
        length = rng.choice(LENGTHS)
        while len(world.sentences) < length:
            _act(world, kind, rng)
        for asked in filter(None, (kind.ask(world, rng) for _ in range(_TRIES))):
            question, answer, support = asked
            if not kind.is_balanced or (world.named[-1:] == [answer]) == (number % 2 == 0):
                return Question(tuple(world.sentences), question, answer, tuple(sorted(support)), number, number + 1)


def _act(world: World, kind: _Kind, rng: random.Random) -> None:
    """One event, if it is possible."""
    (event,) = rng.choices(range(len(kind.events)), kind.events)
    person = rng.choice(PEOPLE)
    place, _ = world.place(person)
    carried = world.carried(person)
    if event == 0:
        world.move(person, rng.choice([each for each in PLACES if each != place]), rng.choice(MOVES))
    elif event == 1 and place is not None:
        world.leave(person)
    elif event == 2:
        free = [
            each for each in THINGS if world.holders.get(each, (None, 0))[0] is None and _is_near(world, each, place)
        ]
        if free:
            world.take(person, rng.choice(free), rng.choice(TAKES))
    elif event == 3 and carried:
        world.drop(person, rng.choice(carried), rng.choice(DROPS))
    elif event == 4 and carried:
        others = [each for each in PEOPLE if each != person and world.place(each)[0] in (place, None)]
        if others:
            world.give(person, rng.choice(carried), rng.choice(others))


def _is_near(world: World, thing: str, place: str | None) -> bool:
    """Whether a person at this place may take a thing that nobody holds."""
    journey = world.journeys[thing]
    return not journey or place is None or journey[-1][0] == place
