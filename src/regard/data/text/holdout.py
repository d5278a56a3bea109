"""Holds out validation pairs from the training pairs, such that no source is in both."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from regard.data.splitting import draw_groups
from regard.data.text.lines import Lines
from regard.data.text.pairs import Pairs


def hold_out(pairs: Pairs, most: int, seed: int, *, one_in: int = 50) -> tuple[Pairs, Pairs, tuple[int, ...]]:
    """The training pairs, the held-out pairs, and the indices of the held-out ones; neither need fit into memory.

    One in `one_in` pairs with text on both sides is held out, at most `most`, sampled by the seed. A source that
    occurs several times is held out with all its occurrences, or not at all if they are more than are wanted: a model
    is not judged on sources that it has seen. If every source is too frequent, the rarest one is held out.
    """
    complete = np.fromiter(_complete_pairs(pairs), np.dtype([("number", np.int64), ("source", np.uint64)]))
    count = max(min(len(complete) // one_in, most), 1)
    sources = np.unique(complete["source"], return_inverse=True)[1]
    groups = draw_groups(sources, count, np.random.default_rng(seed))
    held_out = tuple(complete["number"][np.isin(sources, groups)].tolist())
    if len(held_out) == len(complete):
        raise ValueError(
            f"train has no pair to spare for validation: of {len(pairs):,} lines {len(complete):,} have text on both "
            "sides, and not two different sources; give more lines, or valid as well"
        )
    return *_separate(pairs, held_out), held_out


def _complete_pairs(pairs: Pairs) -> Iterator[tuple[int, int]]:
    """The indices of pairs with text on both sides, and hashes of their sources."""
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        if line.strip() and other.strip():
            yield n, int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest())


def _separate(pairs: Pairs, held_out: Sequence[int]) -> tuple[Pairs, Pairs]:
    indices = set(held_out)
    sides = [(Lines(), Lines()) for _ in range(2)]
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        source, target = sides[n in indices]
        source.add(line)
        target.add(other)
    return Pairs(*sides[False]), Pairs(*sides[True])
