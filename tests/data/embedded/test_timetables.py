"""Timetables: two keys decide, every distractor shares one of them, and no combination is in two splits."""

import re
from itertools import product

import numpy as np
import pytest

from regard.data.embedded.timetables import PARTS, SENTENCES, TOWNS, TRAINS, Departure, dialogue, splits, timetable
from regard.data.text.sentences import split_sentences


@pytest.mark.parametrize("name", PARTS)
def test_every_distractor_shares_one_key(name: str) -> None:
    rng = np.random.default_rng(3)
    shared = set()
    for _ in range(150):
        table = timetable(PARTS[name], rng)
        target = table.departures[table.target]
        assert len(table.departures) in SENTENCES
        counts = []
        for n, row in enumerate(table.departures):
            same = [key for key in table.keys if getattr(row, key) == getattr(target, key)]
            assert len(same) == (2 if n == table.target else 1)
            counts += same if n != table.target else []
        assert set(counts) == set(table.keys)  # each key alone has a choice
        assert len({(row.train, row.town) for row in table.departures}) == len(table.departures)
        shared.add(table.keys)
    assert len(shared) == 4


def test_answers_are_places_of_the_text_and_of_one_sentence() -> None:
    rng = np.random.default_rng(5)
    for n in range(100):
        table = timetable(PARTS["train"], rng)
        target = table.departures[table.target]
        questions = dialogue(table, rng, str(n))
        sentences = split_sentences(questions[0].passage)
        assert len(sentences) == len(table.departures)
        start = questions[0].passage.index(sentences[table.target])
        for turn, question in enumerate(questions):
            (answer,) = question.answers
            assert question.passage[answer.start : answer.end] == answer.text
            assert answer.text in vars(target).values()
            assert start <= answer.start < answer.end <= start + len(sentences[table.target])
            assert len(question.history) == turn
        keys = [getattr(target, key) for key in table.keys]
        assert all(key in questions[0].question for key in keys)
        # a follow-up names nothing
        assert not any(value in each.question for each in questions[1:] for value in vars(target).values() if value)


def pairs(passage: str) -> set[tuple[str, str]]:
    found = set()
    for sentence in split_sentences(passage):
        trains = [train for train in TRAINS if re.search(rf"\b{train}\b", sentence)]
        (town,) = [town for town in TOWNS if town in sentence]
        found.add((max(trains, key=len), town))
    return found


def test_no_combination_of_names_is_in_two_splits() -> None:
    made = splits(1, train=60, valid=20, test=20)
    seen = {
        name: set().union(*(pairs(each.passage) for each in getattr(made, name).questions))
        for name in ("train", "valid", "test")
    }
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not seen[one] & seen[other]
    assert sum(map(len, seen.values())) <= len(list(product(TRAINS, TOWNS)))
    assert len({each.passage for each in made.test.questions}) == 20
    ids = [each.id for part in (made.train, made.valid, made.test) for each in part.questions]
    assert len(set(ids)) == len(ids)


def test_a_departure_is_late_or_replaced() -> None:
    assert Departure("a", "b", "c", "d", delay="2 minutes").tail == "delay"
    assert Departure("a", "b", "c", "d", replacement="a bus").tail == "replacement"
