"""Pairs held out to validate on: a sample of those to learn from, none of whose sources is learned from."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from regard.data.lines import Lines
from regard.data.text import Pairs

# one in so many pairs is held out
_SHARE = 50


def hold_out(pairs: Pairs, most: int, seed: int) -> tuple[Pairs, Pairs, tuple[int, ...]]:
    """The pairs to learn from, those held out, and the numbers of these; neither need fit into memory.

    A fiftieth of the pairs that have text on both sides, at most `most`, drawn by the seed. A source that stands there
    several times is held out as often, or not at all where that is more than are wanted: a model is not judged by what
    it has seen.
    """
    whole = np.fromiter((n for n, _ in _whole(pairs)), np.int64)
    wanted = max(min(len(whole) // _SHARE, most), 1)
    drawn = np.random.default_rng(seed).permutation(whole)[:wanted]
    sources = dict.fromkeys(pairs.source[int(n)] for n in drawn)
    found = [(n, line) for n, line in _whole(pairs) if line in sources]
    times = Counter(line for _, line in found)
    out = set()
    for line in sources:
        if times[line] <= wanted:
            out.add(line)
            wanted -= times[line]
    if sources and not out:
        out = {min(sources, key=times.__getitem__)}
    held = tuple(n for n, line in found if line in out)
    if len(held) == len(whole):
        raise ValueError(
            f"train has no pair to spare for validation: of {len(pairs):,} lines {len(whole):,} have text on both "
            "sides, and not two different sources; give more lines, or valid as well"
        )
    return *_parted(pairs, held), held


def _whole(pairs: Pairs) -> Iterator[tuple[int, str]]:
    """The numbers and sources of pairs with text on both sides."""
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        if line.strip() and other.strip():
            yield n, line


def _parted(pairs: Pairs, held: Sequence[int]) -> tuple[Pairs, Pairs]:
    out = set(held)
    sides = [(Lines(), Lines()) for _ in range(2)]
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        source, target = sides[n in out]
        source.add(line)
        target.add(other)
    return Pairs(*sides[False]), Pairs(*sides[True])
