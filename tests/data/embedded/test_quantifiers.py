"""Twins of sentences with quantifiers: labels that random small worlds confirm, the same words, and separate parts."""

import numpy as np
import pytest

from regard.data.embedded import quantifiers
from regard.data.embedded.quantifiers import ADJECTIVES, CLASSES, TAXONOMY, VERBS

SPLITS = quantifiers.splits(3, train=600, valid=60, test=200)
THINGS = 4


class World:
    """Random things with the nouns, adjectives and verbs that are true of them."""

    def __init__(self, rng: np.random.Generator) -> None:
        def subset(of: np.ndarray) -> np.ndarray:
            return of & (rng.random(of.shape) < 0.6)

        everything = np.ones(THINGS, bool)
        self.sets = {adjective: rng.random(THINGS) < 0.6 for adjective in ADJECTIVES}
        for top, middles in TAXONOMY.items():
            self.sets[top] = subset(everything)
            for middle, lows in middles.items():
                self.sets[middle] = subset(self.sets[top])
                self.sets |= {low: subset(self.sets[middle]) for low in lows}
        self.verbs = {wide: rng.random((THINGS, THINGS)) < 0.6 for wide in VERBS.values()}
        self.verbs |= {narrow: subset(self.verbs[wide]) for narrow, wide in VERBS.items()}

    def noun(self, words: list[str]) -> np.ndarray:
        return np.logical_and.reduce([self.sets[word] for word in words])

    def is_true(self, sentence: str) -> bool:
        words = sentence.split()
        place = next(n for n, word in enumerate(words) if word in self.verbs)
        outer = "not every" if words[0] == "not" else words[0]
        subject, inner = self.noun(words[len(outer.split()) : place]), words[place + 1]
        obj = self.noun(words[place + 2 :])
        holds = [quantified(inner, obj, row) for row in self.verbs[words[place]]]
        return quantified(outer, subject, np.array(holds))


def quantified(quantifier: str, noun: np.ndarray, rest: np.ndarray) -> bool:
    """The truth of "quantifier noun rest"."""
    return {
        "every": not (noun & ~rest).any(),
        "not every": bool((noun & ~rest).any()),
        "some": bool((noun & rest).any()),
        "no": not (noun & rest).any(),
    }[quantifier]


def test_labels_are_those_of_logic() -> None:
    rng = np.random.default_rng(0)
    worlds = [World(rng) for _ in range(700)]
    for line in SPLITS.test.lines[:20]:
        label, first, second = line.split("\t")
        following = {world.is_true(second) for world in worlds if world.is_true(first)}
        expected = {"entailment": {True}, "contradiction": {False}, "neutral": {True, False}}[label]
        assert following == expected, line


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_twins_have_the_same_words_and_different_labels(part: str) -> None:
    data = getattr(SPLITS, part)
    for n in range(0, len(data), 2):
        for side in (data.first, data.second):
            assert sorted(side[n].split()) == sorted(side[n + 1].split())
        assert data.labels[n] != data.labels[n + 1]
    # the most frequent label is half of them, and so is whatever ignores the order
    assert np.bincount(data.labels, minlength=3)[CLASSES.index("neutral")] * 2 == len(data)


def test_no_words_of_a_held_out_pair_are_in_training() -> None:
    def bags(data: quantifiers.LabelledPairs) -> set[tuple[str, str]]:
        pairs = zip(data.first, data.second, strict=True)
        return {(" ".join(sorted(a.split())), " ".join(sorted(b.split()))) for a, b in pairs}

    train, valid, test = bags(SPLITS.train), bags(SPLITS.valid), bags(SPLITS.test)
    assert not train & test
    assert not train & valid
    assert not valid & test


@pytest.mark.parametrize("count", [0, 7])
def test_a_count_that_makes_no_twins(count: int) -> None:
    with pytest.raises(ValueError, match=rf"valid must be an even number, 2 or more, for twins, got {count}; try"):
        quantifiers.splits(valid=count)
