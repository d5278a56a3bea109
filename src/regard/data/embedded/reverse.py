"""Letters -> the same letters from the last to the first: what no fixed vector can hold and attention finds at once.

    bca -> acb

No sequence is drawn twice, so none that is tested was learnt; the few of one or two letters are therefore rarer than
their share.
"""

from string import ascii_lowercase

import numpy as np

from regard.data.text.pairs import Pairs, Splits

# sequences drawn at a time
_DRAWN = 10_000


def splits(seed: int = 0, train: int = 100_000, valid: int = 1_000, test: int = 2_000, *, longest: int = 30) -> Splits:
    """Sequences of 1 to `longest` letters, all lengths alike; a pure function of its arguments."""
    for name, count in (("train", train), ("valid", valid), ("test", test), ("longest", longest)):
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}; try {name}={30 if name == 'longest' else 1000}")
    wanted = train + valid + test
    room = sum(len(ascii_lowercase) ** length for length in range(1, longest + 1))
    # beyond half of all there are, drawing new ones takes long, and what is left to test on is next to what was learnt
    if 2 * wanted > room:
        raise ValueError(
            f"train + valid + test must be at most half of the {room} sequences of up to {longest} letters, "
            f"got {wanted}; raise longest={longest} or ask for fewer"
        )
    draw = np.random.default_rng(seed)
    letters = np.frombuffer(ascii_lowercase.encode(), np.uint8)
    found: dict[str, None] = {}
    while len(found) < wanted:
        lengths = draw.integers(1, longest + 1, _DRAWN)
        rows = letters[draw.integers(0, len(letters), (_DRAWN, longest))]
        found.update((row.tobytes()[:length].decode(), None) for row, length in zip(rows, lengths, strict=True))
    # the first are for the test, which therefore does not depend on how much is learnt
    source = list(found)[:wanted]
    parts = source[test + valid :], source[test : test + valid], source[:test]
    return Splits(*(Pairs(part, [line[::-1] for line in part]) for part in parts))
