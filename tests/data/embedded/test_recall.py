"""Strings that ask for a digit some places back: the answer is there, alone in its key, and nothing else tells it."""

from collections import Counter
from string import ascii_lowercase, ascii_uppercase

import numpy as np
import pytest
from tests.for_each import for_each

from regard.data.embedded import recall
from regard.data.embedded.recall import RecallSizes
from regard.data.text.labelled import LabelledSplits

SIZES = [
    {"distance": 3},
    {"distance": 11},
    {"distance": 13, "nearest": 5},
    {"distance": 7, "keys": 3},
    {"distance": 3, "keys": 5, "distractors": 7},
    {"distance": 23, "nearest": 3, "keys": 4, "distractors": 2},
]


def lines(splits: LabelledSplits) -> list[tuple[str, str]]:
    """Every string with its answer."""
    parts = (splits.train, splits.valid, splits.test)
    return [
        (text, part.classes[label])
        for part in parts
        for text, label in zip(part.texts, part.labels.tolist(), strict=True)
    ]


@for_each("sizes", SIZES)
def test_the_answer_is_where_it_is_said_to_be(sizes: dict[str, int]) -> None:
    wanted = RecallSizes(**sizes)
    nearest = wanted.distance if wanted.nearest is None else wanted.nearest
    back = Counter()
    for text, answer in lines(recall.splits(3, 60, 10, 30, **sizes)):
        assert len(text) == wanted.length
        *string, question, key = text
        assert question == recall.QUESTION
        # every key once, a digit behind each, and digits nowhere else but for distractors
        keys = [n for n, character in enumerate(string) if character in ascii_uppercase]
        assert len({string[n] for n in keys}) == len(keys) == wanted.keys
        values = {string[n]: string[n + 1] for n in keys}
        assert values[key] == answer
        assert all(value in recall.CLASSES for value in values.values())
        digits = sum(character in recall.CLASSES for character in string)
        assert digits == wanted.keys + wanted.distractors
        assert sum(character in ascii_lowercase for character in string) == len(string) - digits - wanted.keys
        place = recall.answer_place(text)
        assert text[place] == answer
        back[len(text) - place] += 1
    assert nearest <= min(back) <= max(back) <= wanted.distance
    if nearest == wanted.distance:
        assert set(back) == {nearest}


def test_nothing_but_the_key_tells_the_answer() -> None:
    """Answers are uniform: in all, by place and by key; and independent of the digits of other keys."""
    splits = recall.splits(5, 3000, 10, 10, distance=12, nearest=4, keys=2, distractors=1)
    assert set(np.bincount(splits.train.labels)) == {300}
    train = list(zip(splits.train.texts, splits.train.labels.tolist(), strict=True))
    back = Counter(len(text) - recall.answer_place(text) for text, _ in train)
    assert set(back) == set(range(4, 13))
    assert max(back.values()) < 1.3 * min(back.values())
    keys = Counter(text[-1] for text, _ in train)
    assert set(keys) == set(ascii_uppercase)
    others = np.zeros((10, 10))
    for text, label in train:
        place = recall.answer_place(text)
        for n, character in enumerate(text):
            if character in recall.CLASSES and n != place:
                others[label, int(character)] += 1
    # χ² of 81 degrees of freedom: 1 in 1000 is above 126
    expected = others.sum(1, keepdims=True) * others.sum(0) / others.sum()
    assert ((others - expected) ** 2 / expected).sum() < 126
    # the value of the other key stands on both sides of the answer
    sides = Counter(
        text.index(key) > recall.answer_place(text) for text, _ in train for key in text[:-2] if key in ascii_uppercase
    )
    assert min(sides.values()) > 500


def test_running_text_has_an_answer_behind_every_string() -> None:
    splits = recall.splits(2, 5, 3, 1, distance=5)
    train, valid = recall.documents(splits)
    assert train[0].splitlines() == [f"{text}{answer}" for text, answer in lines(splits)[:5]]
    assert valid[0].count("\n") == 3


def test_errors() -> None:
    with pytest.raises(ValueError, match="^distance must be 3 or more, got 2; try distance=3$"):
        RecallSizes(2)
    with pytest.raises(ValueError, match="^keys must be 26 at most, got 27; try keys=26$"):
        RecallSizes(5, keys=27)
    with pytest.raises(ValueError, match="^nearest=9 is beyond distance=5; try nearest=5, or leave it out$"):
        RecallSizes(5, nearest=9)
