"""Letters -> the same letters in reverse order: too long for a fixed vector, simple for attention.

    bca -> acb

No sequence occurs twice, so none of the test is in training; the few of one or two letters are therefore rarer than
other lengths.
"""

from string import ascii_lowercase

import numpy as np

from regard.data.text.pairs import Pairs, Splits

# sequences sampled at a time
_CHUNK = 10_000


def splits(seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 30) -> Splits:
    """Sequences of 1 to `longest` letters, uniform over lengths; a pure function of its arguments."""
    for name, count in (("train", train), ("valid", valid), ("test", test), ("longest", longest)):
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}; try {name}={30 if name == 'longest' else 1000}")
    total = train + valid + test
    available = sum(len(ascii_lowercase) ** length for length in range(1, longest + 1))
    # beyond half of all sequences, sampling new ones takes long, and those left for the test resemble the training part
    if 2 * total > available:
        raise ValueError(
            f"train + valid + test must be at most half of the {available} sequences of up to {longest} letters, "
            f"got {total}; raise longest={longest} or ask for fewer"
        )
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(ascii_lowercase.encode(), np.uint8)
    sequences: dict[str, None] = {}
    while len(sequences) < total:
        lengths = rng.integers(1, longest + 1, _CHUNK)
        rows = letters[rng.integers(0, len(letters), (_CHUNK, longest))]
        sequences.update((row.tobytes()[:length].decode(), None) for row, length in zip(rows, lengths, strict=True))
    # the first are for the test, which therefore does not depend on the size of the training part
    source = list(sequences)[:total]
    parts = source[test + valid :], source[test : test + valid], source[:test]
    return Splits(*(Pairs(part, [line[::-1] for line in part]) for part in parts))
