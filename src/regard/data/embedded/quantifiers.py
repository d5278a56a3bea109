"""Sentences with quantifiers -> entailment, contradiction or neutral, as twins.

    every dog chases some cat      every poodle chases some cat      entailment: fewer dogs
    every cat chases some dog      every cat chases some poodle      neutral: a dog need not be a poodle

A twin is two pairs with the same words on either side in another order, and with different labels. A model that ignores
the order of words, such as a bag of words, gives both the same label, so it is right about one of them at most: 50 %.

The label follows from monotonicity  (van Benthem 1986). A quantifier keeps truth when the noun behind it, or the rest
of the sentence, is widened (+1) or narrowed (−1). The object stands in the scope of the subject's quantifier, the verb
in that of both, so their directions are products. The negated quantifier before such a change makes a contradiction.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from regard.data.embedded._generated import cut
from regard.data.text.sentence_pairs import LabelledPairs, PairSplits

CLASSES = ("contradiction", "entailment", "neutral")
# the direction in which the noun behind a quantifier, and the rest of the sentence, may change
DIRECTIONS = {"every": (-1, 1), "some": (1, 1), "no": (-1, -1), "not every": (1, -1)}
NEGATIONS = {"every": "not every", "not every": "every", "some": "no", "no": "some"}
OF_OBJECTS = ("every", "some", "no")
# three levels of nouns: each is narrower than the one before it
TAXONOMY = {
    "animal": {
        "dog": ("poodle", "terrier", "beagle"),
        "cat": ("siamese", "persian", "tabby"),
        "bird": ("parrot", "raven", "finch"),
    },
    "person": {
        "child": ("boy", "girl", "toddler"),
        "artist": ("painter", "singer", "dancer"),
        "worker": ("plumber", "baker", "miner"),
    },
    "vehicle": {
        "car": ("taxi", "coupe", "limousine"),
        "boat": ("canoe", "ferry", "yacht"),
        "bike": ("tandem", "moped", "scooter"),
    },
}
# narrower verbs with wider ones; none says the same when subject and object change places
VERBS = {
    "chases": "follows",
    "tails": "follows",
    "admires": "likes",
    "adores": "likes",
    "spots": "notices",
    "watches": "notices",
}
ADJECTIVES = ("small", "old", "red", "quick", "quiet", "bright")


class _Sentence(NamedTuple):
    quantifier: str
    subject: str
    verb: str
    other: str  # the quantifier of the object
    object: str

    @property
    def text(self) -> str:
        return " ".join(self)


class _Change(NamedTuple):
    """A noun and the same with a narrower or wider meaning."""

    before: str
    after: str
    direction: int  # 1: wider


def splits(seed: int = 0, train: int = 6_000, valid: int = 600, test: int = 1_200) -> PairSplits:
    """Pairs in twins, no twin of one part in another; pure in its arguments."""
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        if count < 2 or count % 2:
            raise ValueError(f"{name} must be an even number, 2 or more, for twins, got {count}; try {name}=1000")
    rng = np.random.default_rng(seed)
    twins: dict[tuple[str, ...], list[tuple[str, str, str]]] = {}
    while len(twins) < (train + valid + test) // 2:
        twin = _noun_twin(rng) if rng.random() < 0.75 else _swap_twin(rng)
        # the two pairs have the same words, so that the words distinguish twins
        (first, second, _), _ = twin
        twins.setdefault((*sorted(first.split()), "/", *sorted(second.split())), twin)
    pairs = list(chain.from_iterable(twins.values()))
    return PairSplits(*map(_labelled, cut(pairs, valid, test)))


def _labelled(pairs: Sequence[tuple[str, str, str]]) -> LabelledPairs:
    first, second, labels = zip(*pairs, strict=True)
    return LabelledPairs(first, second, np.array([CLASSES.index(label) for label in labels], np.int64), CLASSES)


def _noun_twin(rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """A noun is changed where it is the subject, and where it is the object and the direction is the other."""
    quantifiers = [
        (q, other) for q in DIRECTIONS for other in OF_OBJECTS if DIRECTIONS[q][0] != _object_direction(q, other)
    ]
    quantifier, other = quantifiers[rng.integers(len(quantifiers))]
    change = _noun_change(rng)
    fixed = _noun(rng, change)
    verb, changed_verb = _verbs(quantifier, other, rng)
    is_negated = bool(rng.random() < 0.5)
    outer = NEGATIONS[quantifier] if is_negated else quantifier
    twin = []
    for is_subject, direction in ((True, DIRECTIONS[quantifier][0]), (False, _object_direction(quantifier, other))):
        nouns = [(change.before, fixed), (change.after, fixed)]
        (subject, obj), (new_subject, new_object) = nouns if is_subject else [pair[::-1] for pair in nouns]
        before = _Sentence(quantifier, subject, verb, other, obj)
        after = _Sentence(outer, new_subject, changed_verb, other, new_object)
        twin.append((before.text, after.text, _label(change.direction == direction, is_negated)))
    return _shuffled(twin, rng)


def _swap_twin(rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """The nouns stay in their places, or change them."""
    quantifier, other = _pick(tuple(DIRECTIONS), rng), _pick(OF_OBJECTS, rng)
    subject = _noun(rng)
    obj = _noun(rng, _Change(subject, subject, 0))
    verb, changed_verb = _verbs(quantifier, other, rng)
    is_negated = bool(rng.random() < 0.5)
    outer = NEGATIONS[quantifier] if is_negated else quantifier
    premise = _Sentence(quantifier, subject, verb, other, obj).text
    kept = _Sentence(outer, subject, changed_verb, other, obj).text
    swapped = _Sentence(outer, obj, changed_verb, other, subject).text
    return _shuffled([(premise, kept, _label(True, is_negated)), (premise, swapped, "neutral")], rng)


def _label(follows: bool, is_negated: bool) -> str:
    return "neutral" if not follows else "contradiction" if is_negated else "entailment"


def _object_direction(quantifier: str, other: str) -> int:
    return DIRECTIONS[quantifier][1] * DIRECTIONS[other][0]


def _verbs(quantifier: str, other: str, rng: np.random.Generator) -> tuple[str, str]:
    """A verb, and the same one or a change of it that keeps the sentence true."""
    narrow = _pick(tuple(VERBS), rng)
    if rng.random() < 0.5:
        verb = narrow if rng.random() < 0.5 else VERBS[narrow]
        return verb, verb
    direction = DIRECTIONS[quantifier][1] * DIRECTIONS[other][1]
    return (narrow, VERBS[narrow]) if direction > 0 else (VERBS[narrow], narrow)


def _noun_change(rng: np.random.Generator) -> _Change:
    """A noun and a wider or narrower one, by the taxonomy or by an adjective."""
    chains = [
        (top, middle, low) for top, middles in TAXONOMY.items() for middle, lows in middles.items() for low in lows
    ]
    nouns = chains[rng.integers(len(chains))]
    if rng.random() < 0.3:
        noun = _pick(nouns, rng)
        wide, narrow = noun, f"{_pick(ADJECTIVES, rng)} {noun}"
    else:
        level = int(rng.integers(2))
        wide, narrow = nouns[level], nouns[level + 1]
    return _Change(wide, narrow, -1) if rng.random() < 0.5 else _Change(narrow, wide, 1)


def _noun(rng: np.random.Generator, unlike: _Change | None = None) -> str:
    """A noun, half of them with an adjective; of another kind than that of `unlike`."""
    taken = set() if unlike is None else {*unlike.before.split(), *unlike.after.split()}
    kinds = {top: [top, *chain.from_iterable((m, *lows) for m, lows in ms.items())] for top, ms in TAXONOMY.items()}
    free = [noun for nouns in kinds.values() if not taken & set(nouns) for noun in nouns]
    noun = free[rng.integers(len(free))]
    return noun if rng.random() < 0.5 else f"{_pick(ADJECTIVES, rng)} {noun}"


def _pick(choices: tuple[str, ...], rng: np.random.Generator) -> str:
    return choices[rng.integers(len(choices))]


def _shuffled(twin: list[tuple[str, str, str]], rng: np.random.Generator) -> list[tuple[str, str, str]]:
    return twin if rng.random() < 0.5 else twin[::-1]
