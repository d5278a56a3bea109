"""Letters -> the same letters, once or several times: tests of a memory  (Graves et al. 2014, sections 4.1 and 4.2).

    copy          bca   -> bca
    repeat-copy   bca3  -> bcabcabca        the digit at the end says how often

The paper has random binary vectors in place of letters. No source occurs twice, so none of the test is in training; the
few of one or two letters are therefore rarer than other lengths.
"""

from collections.abc import Iterator

import numpy as np

from regard.data.embedded._letters import (
    check_available,
    check_counts,
    check_new,
    distinct,
    letter_sequences,
    split_pairs,
)
from regard.data.text.pairs import Pairs, Splits

# a digit says how often
MOST_REPEATS = 9
# seed of the sequences of one length, which differ from those of all splits
_OF_LENGTH = 1


def copy_splits(
    seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 20
) -> Splits:
    """Sequences of 1 to `longest` letters, uniform over lengths; a pure function of its arguments."""
    check_counts(longest, 20, train=train, valid=valid, test=test)
    check_available(train + valid + test, longest)
    sources = distinct(letter_sequences(np.random.default_rng(seed), longest), train + valid + test)
    return split_pairs(sources, str, valid, test)


def copy_of_length(seed: int, count: int, length: int, known: set[str]) -> Pairs:
    """Sequences of this many letters, none of which is among the known ones."""
    check_new(count, length, sum(len(line) == length for line in known))
    sources = distinct(letter_sequences(np.random.default_rng([seed, _OF_LENGTH]), length, length), count, known)
    return Pairs(sources, sources)


def repeat_copy_splits(
    seed: int = 0,
    train: int = 100_000,
    valid: int = 1_000,
    test: int = 2_000,
    *,
    longest: int = 10,
    repeats: int = 5,
) -> Splits:
    """Sequences of 1 to `longest` letters, uniform over lengths, to be repeated 1 to `repeats` times."""
    check_counts(longest, 10, train=train, valid=valid, test=test)
    check_repeats(repeats)
    check_available(train + valid + test, longest, repeats)
    rng = np.random.default_rng(seed)
    sources = distinct(_with_counts(letter_sequences(rng, longest), rng, 1, repeats), train + valid + test)
    return split_pairs(sources, repeated, valid, test)


def repeat_copy_of_length(seed: int, count: int, length: int, known: set[str], *, repeats: int) -> Pairs:
    """Sequences of this many letters, each repeated `repeats` times, none of which is among the known ones."""
    check_repeats(repeats)
    check_new(count, length, sum(len(line) == length + 1 for line in known))
    rng = np.random.default_rng([seed, _OF_LENGTH])
    sequences = _with_counts(letter_sequences(rng, length, length), rng, repeats, repeats)
    sources = distinct(sequences, count, known)
    return Pairs(sources, [repeated(line) for line in sources])


def repeated(source: str) -> str:
    """The target of a source of repeat-copy."""
    return source[:-1] * int(source[-1])


def check_repeats(repeats: int) -> None:
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats must be from 1 to {MOST_REPEATS}, which is a digit, got {repeats}; try repeats=5")


def _with_counts(sequences: Iterator[str], rng: np.random.Generator, least: int, most: int) -> Iterator[str]:
    for line in sequences:
        yield f"{line}{rng.integers(least, most + 1)}"
