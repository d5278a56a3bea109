"""The embedded fields: legal tags, the locale decides, and no date or number is in two parts."""

import re

import regard
from regard.data.embedded import fields
from regard.data.tagging.tagged import TaggedSentence, find_scheme

LABELS = ("DAY", "MONTH", "YEAR", "WHOLE", "DECIMAL", "CURRENCY", "PERCENT")
SPLITS = fields.splits(train=300, valid=100, test=100)


def values(sentences: list[TaggedSentence], labels: str) -> set[str]:
    pattern = re.compile(f"B-({labels})")
    return {
        word
        for sentence in sentences
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
        if pattern.match(tag)
    }


def dates(sentences: list[TaggedSentence]) -> set[tuple[int, int, int]]:
    found = set()
    for sentence in sentences:
        read: dict[str, int] = {}
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if tag in ("B-DAY", "B-MONTH", "B-YEAR"):
                read[tag] = fields._months().index(word) + 1 if word.isalpha() else int(word)
            if len(read) == 3:
                found.add((read["B-YEAR"], read["B-MONTH"], read["B-DAY"]))
                read = {}
    return found


def test_tags_are_legal_and_complete() -> None:
    scheme = regard.layers.TagScheme("IOB2", ["O", *[f"{p}-{label}" for label in LABELS for p in "BI"]])
    for sentence in SPLITS.train:
        assert scheme.violation(sentence.tags) is None
    assert find_scheme(SPLITS.train) == "IOB2"
    assert {span.label for s in SPLITS.train for span in scheme.spans(s.tags)} == set(LABELS)


def test_parts_share_no_date_and_no_number() -> None:
    parts = [SPLITS.train, SPLITS.valid, SPLITS.test]
    for n, part in enumerate(parts):
        for other in parts[n + 1 :]:
            assert not dates(list(part)) & dates(list(other))
            assert not values(list(part), "WHOLE|DECIMAL") & values(list(other), "WHOLE|DECIMAL")


def test_the_same_digits_are_read_both_ways() -> None:
    first = [next(tag for tag in s.tags if tag in ("B-DAY", "B-MONTH")) for s in SPLITS.train if "/" in s.words]
    assert 0.35 < first.count("B-DAY") / len(first) < 0.65
    marks = [
        (word[-4], tag)
        for s in SPLITS.train
        for word, tag in zip(s.words, s.tags, strict=True)
        if tag in ("B-WHOLE", "B-DECIMAL")
    ]
    for mark in ".,":
        share = marks.count((mark, "B-WHOLE")) / sum(each[0] == mark for each in marks)
        assert 0.2 < share < 0.8
