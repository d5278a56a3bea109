"""Generated timetables -> answers to questions about one of their trains, and to follow-ups.  No torch here.

    The Night Owl to Elmwick leaves at 7.40 from platform 3, 12 minutes late. At 7.40 the Blue Arrow leaves for
    Ashford from platform 11, replaced by two buses. …

    When does the Night Owl to Elmwick leave?     7.40
    And how late is it?                           12 minutes

A table has 6 to 12 sentences of like shape. The first question names two of train, town, time and platform, and every
other sentence shares exactly one of the two: whoever matches one of them alone has a choice of several trains.
Follow-up questions name nothing: only the questions and answers before them say which train is meant.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import TypeVar

import numpy as np

from regard.data.embedded._generated import check_counts
from regard.data.questions.squad import GoldAnswer, SpanQuestion, SpanQuestions, SpanQuestionSplits

T = TypeVar("T")

TRAINS = (
    *("Night Owl", "Blue Arrow", "Silver Star", "Morning Mail", "Coast Line", "Valley Line", "Red Comet", "Northern"),
    *("Southern", "Pilgrim", "Harbour Line", "Silver Arrow", "Night Mail", "Red Star", "Forest Line", "Sprinter"),
    *("Express", "Shuttle", "Blue Comet", "Northern Star"),
)
TOWNS = tuple(
    start + end
    for start, end in product(
        ("Ash", "Brack", "Corn", "Dun", "Elm", "Fal", "Gar", "Hart", "Kel", "Lang"),
        ("by", "ford", "ham", "stead", "wick"),
    )
)
REPLACEMENTS = (
    *("a bus", "two buses", "a coach", "a white coach", "a ferry", "three minibuses", "a tram", "an old tram"),
    *("a bus with red doors", "two coaches", "a taxi", "a small ferry"),
)
PLATFORMS = tuple(str(n) for n in range(1, 15))
SENTENCES = range(6, 13)
_TIMES = tuple(f"{hour}.{minute:02d}" for hour in range(5, 24) for minute in range(0, 60, 5))
# a train and a town stand together in one of five parts: one for the test, one to validate, three to train on
_NUM_PARTS = 5
_IN_PAIR = ("train", "town")
PARTS = {"test": (0,), "valid": (1,), "train": (2, 3, 4)}

_SHAPES = (
    "The {train} to {town} leaves at {time} from platform {platform}",
    "At {time} the {train} leaves for {town} from platform {platform}",
    "From platform {platform} the {train} goes to {town} at {time}",
    "The {time} train to {town} from platform {platform} is the {train}",
    "On platform {platform} the {time} to {town} is the {train}",
)
_TAILS = {"delay": ", {delay} late.", "replacement": ", replaced by {replacement}."}
# the two keys of a first question, and the beginnings of its questions
_NAMES = {
    ("train", "town"): ("the {train} to {town}",),
    ("train", "time"): ("the {train} at {time}", "the {time} {train}"),
    ("town", "time"): ("the {time} train to {town}", "the train to {town} at {time}"),
    ("platform", "time"): ("the train at {time} from platform {platform}", "the {time} from platform {platform}"),
}
_FIRST = {
    "time": ("When does {it} leave?", "At what time does {it} leave?"),
    "platform": ("From which platform does {it} leave?", "What is the platform of {it}?"),
    "delay": ("How late is {it}?", "What is the delay of {it}?"),
    "replacement": ("What replaces {it}?", "What comes instead of {it}?"),
    "town": ("Where does {it} go?", "What is the destination of {it}?"),
    "train": ("What is {it} called?", "What is the name of {it}?"),
}
_FOLLOWING = {
    "time": ("And when does it leave?", "At what time?"),
    "platform": ("And its platform?", "From which platform?"),
    "delay": ("And how late is it?", "What is its delay?"),
    "replacement": ("And what replaces it?", "What comes instead?"),
    "town": ("And where does it go?", "And its destination?"),
    "train": ("And what is it called?", "And its name?"),
}


@dataclass(frozen=True)
class Departure:
    """One train of a table; it is either late or replaced."""

    train: str
    town: str
    time: str
    platform: str
    delay: str = ""
    replacement: str = ""

    @property
    def tail(self) -> str:
        return "delay" if self.delay else "replacement"


@dataclass(frozen=True)
class Timetable:
    """Departures in the order of their sentences, the one that is asked about, and the keys that name it."""

    departures: tuple[Departure, ...]
    target: int
    keys: tuple[str, str]


def splits(seed: int = 0, train: int = 6_000, valid: int = 150, test: int = 500) -> SpanQuestionSplits:
    """Questions about this many tables each; no train goes to a town in two of the splits. Pure in its arguments."""
    check_counts(100, train=train, valid=valid, test=test)
    splits_by_name = {}
    for n, (name, count) in enumerate((("train", train), ("valid", valid), ("test", test))):
        rng = np.random.default_rng([seed, n])
        questions: dict[str, SpanQuestion] = {}
        passages: set[str] = set()
        while len(passages) < count:
            dialogue_questions = dialogue(timetable(PARTS[name], rng), rng, f"{name}-{len(passages)}")
            if dialogue_questions[0].passage not in passages:
                passages.add(dialogue_questions[0].passage)
                questions |= {question.id: question for question in dialogue_questions}
        splits_by_name[name] = SpanQuestions(tuple(questions.values()))
    return SpanQuestionSplits(**splits_by_name)


@cache
def _pairs(parts: tuple[int, ...]) -> dict[str, list[tuple[str, str]]]:
    """The trains and towns of these parts: those of every train, of every town, and all under ""."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for (i, train), (j, town) in product(enumerate(TRAINS), enumerate(TOWNS)):
        if (i + j) % _NUM_PARTS in parts:
            for name in (train, town, ""):
                pairs.setdefault(name, []).append((train, town))
    return pairs


def timetable(parts: tuple[int, ...], rng: np.random.Generator) -> Timetable:
    """A table of trains that go to towns of these parts; every other one shares one key with the one asked about."""
    pairs = _pairs(parts)
    keys: tuple[str, str] = _choose(tuple(_NAMES), rng)
    target = _departure(_choose(pairs[""], rng), rng)
    rows, used = [target], {(target.train, target.town)}
    for n in range(int(rng.integers(SENTENCES.start, SENTENCES.stop)) - 1):
        # one row shares the first key, one the second, the others either, unless no further train goes to the town
        fitting = {
            key: [pair for pair in pairs[getattr(target, key)] if pair not in used] if key in _IN_PAIR else pairs[""]
            for key in keys
        }
        shared = keys[n] if n < 2 else _choose([key for key in keys if fitting[key]], rng)
        other = keys[1 - keys.index(shared)]
        while True:
            pair = _choose(fitting[shared], rng)
            row = _departure(pair, rng)
            if shared not in _IN_PAIR:
                row = replace(row, **{shared: getattr(target, shared)})
            if pair not in used and getattr(row, other) != getattr(target, other):
                break
        rows.append(row)
        used.add(pair)
    order = rng.permutation(len(rows)).tolist()
    return Timetable(tuple(rows[n] for n in order), order.index(0), keys)


def _departure(pair: tuple[str, str], rng: np.random.Generator) -> Departure:
    row = Departure(*pair, _choose(_TIMES, rng), _choose(PLATFORMS, rng))
    if rng.integers(2):
        return replace(row, delay=f"{rng.integers(2, 60)} minutes")
    return replace(row, replacement=_choose(REPLACEMENTS, rng))


def dialogue(table: Timetable, rng: np.random.Generator, name: str) -> list[SpanQuestion]:
    """One to three questions about the departure that the keys name, the first by the keys, the others by "it"."""
    target = table.departures[table.target]
    passage, answers = _write(table, rng)
    fields = [field for field in ("train", "town", "time", "platform", target.tail) if field not in table.keys]
    asked = [fields[n] for n in rng.permutation(len(fields))[: rng.integers(1, len(fields) + 1)].tolist()]
    named = _choose(_NAMES[table.keys], rng).format(**vars(target))
    questions: list[SpanQuestion] = []
    turns: list[tuple[str, str]] = []
    for n, field in enumerate(asked):
        question = _choose((_FOLLOWING if n else _FIRST)[field], rng).format(it=named)
        questions.append(SpanQuestion(f"{name}-{n + 1}", passage, question, (answers[field],), tuple(turns)))
        turns.append((question, answers[field].text))
    return questions


def _write(table: Timetable, rng: np.random.Generator) -> tuple[str, dict[str, GoldAnswer]]:
    """The text of a table, and the places of the fields of its target."""
    text, places = "", {}
    for n, row in enumerate(table.departures):
        text += " " if text else ""
        for part in re.split(r"(\{\w+\})", _choose(_SHAPES, rng) + _TAILS[row.tail]):
            if part.startswith("{"):
                value = getattr(row, part[1:-1])
                if n == table.target:
                    places[part[1:-1]] = GoldAnswer(value, len(text))
                part = value
            text += part
    return text, places


def _choose(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]
