"""Pairs held out to validate on: a sample of those to learn from, none of whose sources is learned from."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from regard.data.splitting import draw_groups
from regard.data.text.lines import Lines
from regard.data.text.pairs import Pairs

# one in so many pairs is held out
_SHARE = 50


def hold_out(pairs: Pairs, most: int, seed: int) -> tuple[Pairs, Pairs, tuple[int, ...]]:
    """The pairs to learn from, those held out, and the numbers of these; neither need fit into memory.

    A fiftieth of the pairs that have text on both sides, at most `most`, drawn by the seed. A source that stands there
    several times is held out as often, or not at all where that is more than are wanted: a model is not judged by what
    it has seen. Where every source is too frequent, it is the rarest.
    """
    whole = np.fromiter(_whole(pairs), np.dtype([("number", np.int64), ("source", np.uint64)]))
    wanted = max(min(len(whole) // _SHARE, most), 1)
    sources = np.unique(whole["source"], return_inverse=True)[1]
    chosen = draw_groups(sources, wanted, np.random.default_rng(seed))
    held = tuple(whole["number"][np.isin(sources, chosen)].tolist())
    if len(held) == len(whole):
        raise ValueError(
            f"train has no pair to spare for validation: of {len(pairs):,} lines {len(whole):,} have text on both "
            "sides, and not two different sources; give more lines, or valid as well"
        )
    return *_parted(pairs, held), held


def _whole(pairs: Pairs) -> Iterator[tuple[int, int]]:
    """The numbers of pairs with text on both sides, and fingerprints of their sources."""
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        if line.strip() and other.strip():
            yield n, int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest())


def _parted(pairs: Pairs, held: Sequence[int]) -> tuple[Pairs, Pairs]:
    out = set(held)
    sides = [(Lines(), Lines()) for _ in range(2)]
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        source, target = sides[n in out]
        source.add(line)
        target.add(other)
    return Pairs(*sides[False]), Pairs(*sides[True])
