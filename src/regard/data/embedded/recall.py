"""Generated strings that end in a question -> the digit that answers it, some places back.  No torch here.

    xkeBqc7fM4wzto?M                                                                                             -> 4

A pair is a key, a capital, and its value, a digit. The string ends in a question mark and one of its keys, and the
answer is the value of that key: n places back, counted from the place behind the string. Further pairs have other keys,
distractors are digits without a key, and the rest are small letters. The answer does not depend on anything else in
the string, and is each digit equally often.
"""

from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
from numpy.typing import NDArray

from regard.data.embedded._generated import generated_splits
from regard.data.text.labelled import LabelledSplits
from regard.data.text.running_text import TextSplits

CLASSES = tuple(digits)
QUESTION = "?"
# the value stands before the question and its key
NEAREST = 3
MOST_KEYS = len(ascii_uppercase)
_KEYS, _VALUES, _LETTERS = (
    np.frombuffer(text.encode(), np.uint8) for text in (ascii_uppercase, digits, ascii_lowercase)
)
# letters before the earliest pair, so that there are enough strings of every size
_LEAD = 4


@dataclass(frozen=True)
class RecallSizes:
    """Sizes of strings: the n places back to the answer, nearest <= n <= distance, pairs of keys, and distractors.

    All strings have the same length, whatever their n.
    """

    distance: int = 16
    nearest: int | None = None  # None: all answers stand at `distance`
    keys: int = 1
    distractors: int = 0

    def __post_init__(self) -> None:
        bounds = {"distance": NEAREST, "nearest": NEAREST, "keys": 1, "distractors": 0}
        for name, least in bounds.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be {least} or more, got {value}; try {name}={least}")
        if self.keys > MOST_KEYS:
            raise ValueError(f"keys must be {MOST_KEYS} at most, got {self.keys}; try keys={MOST_KEYS}")
        if self.nearest is not None and self.nearest > self.distance:
            raise ValueError(
                f"nearest={self.nearest} is beyond distance={self.distance}; try nearest={self.distance}, or leave it "
                "out"
            )

    @property
    def length(self) -> int:
        """Characters of a string: there is room for all pairs and distractors before the farthest answer."""
        return _LEAD + 2 * (self.keys - 1) + self.distractors + 1 + self.distance


def splits(
    seed: int = 0,
    train: int = 10_000,
    valid: int = 500,
    test: int = 1_000,
    *,
    distance: int = 16,
    nearest: int | None = None,
    keys: int = 1,
    distractors: int = 0,
) -> LabelledSplits:
    """Strings, as many of every answer, none twice; pure in its arguments."""
    sizes = RecallSizes(distance, nearest, keys, distractors)
    rng = np.random.default_rng(seed)
    return generated_splits(lambda label: (_string(label, sizes, rng), None), CLASSES, train, valid, test)


def documents(parts: LabelledSplits) -> TextSplits:
    """The strings as running text, one per line, each with its answer behind it."""
    train, valid = (
        "".join(f"{text}{part.classes[label]}\n" for text, label in zip(part.texts, part.labels, strict=True))
        for part in (parts.train, parts.valid)
    )
    return TextSplits([train], [valid])


def answer_place(text: str) -> int:
    """The place of the answer in a string: behind the first of the two keys that are equal."""
    return text.index(text[-1]) + 1


def _string(label: int, sizes: RecallSizes, rng: np.random.Generator) -> str:
    back = int(rng.integers(sizes.distance if sizes.nearest is None else sizes.nearest, sizes.distance + 1))
    keys = rng.permutation(_KEYS)[: sizes.keys]
    values = _VALUES[rng.integers(len(_VALUES), size=sizes.keys + sizes.distractors)]
    values[0] = _VALUES[label]
    row = _LETTERS[rng.integers(len(_LETTERS), size=sizes.length)]
    place = sizes.length - back
    before, after = place - 1, back - NEAREST  # free places on both sides of the pair
    behind = int(rng.integers(min(sizes.keys - 1, after // 2) + 1))  # number of other pairs behind the pair
    further = [_pair_starts(before, sizes.keys - 1 - behind, rng), place + 1 + _pair_starts(after, behind, rng)]
    starts = np.concatenate([[place - 1], *further])
    row[starts], row[starts + 1] = keys, values[: sizes.keys]
    row[-2:] = ord(QUESTION), keys[0]
    if sizes.distractors:
        is_free = np.ones(sizes.length, bool)
        is_free[[*starts, *(starts + 1), -2, -1]] = False
        row[rng.permutation(is_free.nonzero()[0])[: sizes.distractors]] = values[sizes.keys :]
    return row.tobytes().decode()


def _pair_starts(places: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The first places of `count` pairs among `places` places, without overlap; every arrangement is equally likely."""
    return np.sort(rng.permutation(places - count)[:count]) + np.arange(count)
