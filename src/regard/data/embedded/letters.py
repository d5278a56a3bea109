"""Letters -> the same letters, reversed, copied, or copied several times.  No torch here.

    reverse       bca   -> acb              too long for a fixed vector, simple for attention
    copy          bca   -> bca              a test of a memory  (Graves et al. 2014, sections 4.1 and 4.2)
    repeat-copy   bca3  -> bcabcabca        the digit at the end says how often

The paper has random binary vectors in place of letters. No source occurs twice, so none of the test is in training; the
few of one or two letters are therefore rarer than other lengths.
"""

from collections.abc import Callable, Iterator
from string import ascii_lowercase

import numpy as np

from regard.data.embedded._generated import check_counts, cut, distinct
from regard.data.text.pairs import Pairs, Splits

# a digit says how often
MOST_REPEATS = 9
# letters of a sequence: a chunk has to fit into memory
MOST_LETTERS = 2_000
# sequences sampled at a time
_CHUNK = 10_000
# seed of the sequences of one length, which differ from those of all splits
_OF_LENGTH = 1


def reverse_splits(
    seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 30
) -> Splits:
    """Sequences of 1 to `longest` letters, uniform over lengths; a pure function of its arguments."""
    sequences = _sequences(np.random.default_rng(seed), longest)
    return _splits(sequences, lambda line: line[::-1], longest, 30, train=train, valid=valid, test=test)


def copy_splits(
    seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 20
) -> Splits:
    """Sequences of 1 to `longest` letters, uniform over lengths; a pure function of its arguments."""
    sequences = _sequences(np.random.default_rng(seed), longest)
    return _splits(sequences, str, longest, 20, train=train, valid=valid, test=test)


def copy_of_length(seed: int, count: int, length: int, known: set[str]) -> Pairs:
    """Sequences of this many letters, none of which is among the known ones."""
    _check_new(count, length, sum(len(line) == length for line in known))
    sources = distinct(_sequences(np.random.default_rng([seed, _OF_LENGTH]), length, length), count, known)
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
    check_repeats(repeats)
    rng = np.random.default_rng(seed)
    sequences = _with_counts(_sequences(rng, longest), rng, 1, repeats)
    return _splits(sequences, repeated, longest, 10, repeats, train=train, valid=valid, test=test)


def repeat_copy_of_length(seed: int, count: int, length: int, known: set[str], *, repeats: int) -> Pairs:
    """Sequences of this many letters, each repeated `repeats` times, none of which is among the known ones."""
    check_repeats(repeats)
    _check_new(count, length, sum(len(line) == length + 1 for line in known))
    rng = np.random.default_rng([seed, _OF_LENGTH])
    sources = distinct(_with_counts(_sequences(rng, length, length), rng, repeats, repeats), count, known)
    return Pairs(sources, [repeated(line) for line in sources])


def repeated(source: str) -> str:
    """The target of a source of repeat-copy."""
    return source[:-1] * int(source[-1])


def check_repeats(repeats: int) -> None:
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats must be from 1 to {MOST_REPEATS}, which is a digit, got {repeats}; try repeats=5")


def _sequences(rng: np.random.Generator, longest: int, shortest: int = 1) -> Iterator[str]:
    """Sequences without end, uniform over these lengths."""
    letters = np.frombuffer(ascii_lowercase.encode(), np.uint8)
    while True:
        lengths = rng.integers(shortest, longest + 1, _CHUNK)
        rows = letters[rng.integers(0, len(letters), (_CHUNK, longest))]
        for row, length in zip(rows, lengths, strict=True):
            yield row.tobytes()[:length].decode()


def _with_counts(sequences: Iterator[str], rng: np.random.Generator, least: int, most: int) -> Iterator[str]:
    for line in sequences:
        yield f"{line}{rng.integers(least, most + 1)}"


def _splits(
    sequences: Iterator[str], answer: Callable[[str], str], longest: int, example: int, times: int = 1, **counts: int
) -> Splits:
    """The first of the sequences as parts of these counts, each with its answer.

    `example` is a good longest length, and every sequence of letters exists `times` times. Beyond half of all, sampling
    new ones takes long, and those left for the test resemble the training part.
    """
    check_counts(**counts)
    check_counts(example, longest=longest)
    if longest > MOST_LETTERS:
        raise ValueError(f"longest must be at most {MOST_LETTERS}, got {longest}; try longest={example}")
    total = sum(counts.values())
    available = times * sum(len(ascii_lowercase) ** length for length in range(1, longest + 1))
    if 2 * total > available:
        raise ValueError(
            f"train + valid + test must be at most half of the {available} sequences of up to {longest} letters, "
            f"got {total}; raise longest={longest} or ask for fewer"
        )
    parts = cut(distinct(sequences, total, set()), counts["valid"], counts["test"])
    return Splits(*(Pairs(part, [answer(line) for line in part]) for part in parts))


def _check_new(count: int, length: int, known: int) -> None:
    """Raises if half of all sequences of this length are fewer than the known and `count` new ones, or if they are too
    long."""
    if length > MOST_LETTERS:
        raise ValueError(f"length must be at most {MOST_LETTERS}, got {length}; try length=40")
    if 2 * (count + known) > len(ascii_lowercase) ** length:
        raise ValueError(
            f"length must be large enough for {count} new sequences, got {length}, of which there are "
            f"{len(ascii_lowercase) ** max(length, 0)}; try length=10"
        )
