"""Holds out validation pairs from the training pairs, such that no source is in both."""

from collections.abc import Sequence

import numpy as np

from regard.data.splitting import held_out
from regard.data.text.lines import Lines
from regard.data.text.pairs import Pairs


def hold_out(pairs: Pairs, most: int, seed: int, *, one_in: int = 50) -> tuple[Pairs, Pairs, tuple[int, ...]]:
    """The training pairs, the held-out pairs, and the indices of the held-out ones; neither need fit into memory.

    One in `one_in` pairs with text on both sides is held out, at most `most`. Pairs with the same source stay together:
    a model is not judged on sources that it has seen.
    """
    is_complete = np.fromiter(map(_has_text, pairs.source, pairs.target), bool)
    complete = np.flatnonzero(is_complete)
    held = np.zeros(0, bool)
    if len(complete):
        sources = (line for line, has_text in zip(pairs.source, is_complete.tolist(), strict=True) if has_text)
        held = held_out(sources, min(1 / one_in, most / len(complete)), seed)
    if not held.any():
        raise ValueError(
            f"train has no pair to spare for validation: of {len(pairs):,} lines {len(complete):,} have text on both "
            "sides, and not two different sources; give more lines, or valid as well"
        )
    indices = tuple(complete[held].tolist())
    return *_separate(pairs, indices), indices


def _has_text(source: str, target: str) -> bool:
    return bool(source.strip() and target.strip())


def _separate(pairs: Pairs, held: Sequence[int]) -> tuple[Pairs, Pairs]:
    indices = set(held)
    sides = [(Lines(), Lines()) for _ in range(2)]
    for n, (line, other) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        source, target = sides[n in indices]
        source.add(line)
        target.add(other)
    return Pairs(*sides[False]), Pairs(*sides[True])
