"""Batches of inputs of similar length, so that little padding is computed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def similar_batches(
    lengths: Sequence[Any], size: int, done: Callable[[int], object] | None = None
) -> Iterator[list[int]]:
    """The numbers of inputs with these lengths in batches, the shortest first.

    `done` is called after every batch with the number of inputs so far.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), size):
        yield order[start : start + size]
        if done is not None:
            done(min(start + size, len(order)))
