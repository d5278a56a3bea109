"""The parts of generated data: as many examples as are asked for, none twice.  No torch here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

import numpy as np

from regard.data.images.digit_splits import HELD_OUT
from regard.data.splitting import Parts, Split
from regard.data.text.labelled import LabelledSplits, LabelledTexts

Example = TypeVar("Example")


def check_counts(example: int = 1000, **counts: int) -> None:
    """Raises for a part without examples; `example` is a good number of them."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}; try {name}={example}")


def distinct(items: Iterator[str], count: int, known: set[str]) -> list[str]:
    """The first `count` items, each once, none of which is known."""
    new = dict.fromkeys(known)
    while len(new) < len(known) + count:
        new.setdefault(next(items))
    return list(new)[len(known) :]


def cut(examples: Sequence[Example], valid: int, test: int) -> Parts[Sequence[Example]]:
    """The first are for the test, which therefore does not depend on how many are trained on."""
    return Parts(examples[test + valid :], examples[test : test + valid], examples[:test])


def split_generator(
    seed: int, split: Split, count: int | None, counts: Mapping[Split, int]
) -> tuple[np.random.Generator, int]:
    """The generator of a split of its own, and how many examples it makes, of `counts` if None are asked for."""
    count = counts[split] if count is None else count
    check_counts(count=count)
    return np.random.default_rng([seed, sorted(counts).index(split)]), count


def hashed_split(key: str) -> Split:
    """The only split with the examples that have this key, whatever other examples there are."""
    share = int.from_bytes(sha256(key.encode()).digest()[:8], "big") / 2**64
    if share < HELD_OUT["test"]:
        return "test"
    return "valid" if share < HELD_OUT["test"] + HELD_OUT["valid"] else "train"


def generated_splits(
    generate: Callable[[int], tuple[str, int | None]], classes: tuple[str, ...], train: int, valid: int, test: int
) -> LabelledSplits:
    """The texts that `generate` makes of the classes in turn, each with the number of the sentence that decides it."""
    check_counts(train=train, valid=valid, test=test)
    generated: dict[str, tuple[int, int | None]] = {}
    while len(generated) < train + valid + test:
        label = len(generated) % len(classes)
        text, sentence = generate(label)
        generated.setdefault(text, (label, sentence))

    def part(rows: Sequence[tuple[str, tuple[int, int | None]]]) -> LabelledTexts:
        labels, sentences = zip(*(row for _, row in rows), strict=True)
        evidence = None if None in sentences else np.array(sentences, np.int64)
        return LabelledTexts([text for text, _ in rows], np.array(labels, np.int64), classes, evidence)

    return LabelledSplits(*map(part, cut(list(generated.items()), valid, test)))
