"""Random sequences of letters, none twice, and their division into pairs.  No torch here."""

from collections.abc import Callable, Iterator
from itertools import islice
from string import ascii_lowercase

import numpy as np

from regard.data.text.pairs import Pairs, Splits

# sequences sampled at a time
_CHUNK = 10_000
# letters of a sequence: a chunk has to fit into memory
MOST_LETTERS = 2_000


def letter_sequences(rng: np.random.Generator, longest: int, shortest: int = 1) -> Iterator[str]:
    """Sequences without end, uniform over these lengths."""
    letters = np.frombuffer(ascii_lowercase.encode(), np.uint8)
    while True:
        lengths = rng.integers(shortest, longest + 1, _CHUNK)
        rows = letters[rng.integers(0, len(letters), (_CHUNK, longest))]
        for row, length in zip(rows, lengths, strict=True):
            yield row.tobytes()[:length].decode()


def distinct(items: Iterator[str], count: int, known: set[str] | None = None) -> list[str]:
    """The first `count` items, each once, none of which is known."""
    seen = set() if known is None else set(known)

    def new_items() -> Iterator[str]:
        for item in items:
            if item not in seen:
                seen.add(item)
                yield item

    return list(islice(new_items(), count))


def check_counts(longest: int, example: int, **counts: int) -> None:
    """Raises for an empty part, and for sequences of no or too many letters; `example` is a good longest length."""
    for name, count in {**counts, "longest": longest}.items():
        if count < 1:
            raise ValueError(
                f"{name} must be 1 or more, got {count}; try {name}={example if name == 'longest' else 1000}"
            )
    if longest > MOST_LETTERS:
        raise ValueError(f"longest must be at most {MOST_LETTERS}, got {longest}; try longest={example}")


def check_available(total: int, longest: int, times: int = 1) -> None:
    """Raises if this many of the sequences, each of which exists `times` times, would be sampled slowly.

    Beyond half of all, sampling new ones takes long, and those left for the test resemble the training part.
    """
    available = times * sum(len(ascii_lowercase) ** length for length in range(1, longest + 1))
    if 2 * total > available:
        raise ValueError(
            f"train + valid + test must be at most half of the {available} sequences of up to {longest} letters, "
            f"got {total}; raise longest={longest} or ask for fewer"
        )


def check_new(count: int, length: int, known: int) -> None:
    """Raises if half of all sequences of this length are fewer than the known and `count` new ones, or if they are too
    long."""
    if length > MOST_LETTERS:
        raise ValueError(f"length must be at most {MOST_LETTERS}, got {length}; try length=40")
    if 2 * (count + known) > len(ascii_lowercase) ** length:
        raise ValueError(
            f"length must be large enough for {count} new sequences, got {length}, of which there are "
            f"{len(ascii_lowercase) ** max(length, 0)}; try length=10"
        )


def split_pairs(sources: list[str], answer: Callable[[str], str], valid: int, test: int) -> Splits:
    """The first are for the test, which therefore does not depend on the size of the training part."""
    parts = sources[test + valid :], sources[test : test + valid], sources[:test]
    return Splits(*(Pairs(part, [answer(line) for line in part]) for part in parts))
