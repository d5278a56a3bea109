"""Where queries stand that look at a cache: behind what it holds, or, where it lets go of what is old, behind more."""

from typing import NamedTuple

import torch
from torch import Tensor

# so many numbers tell the sample of a batch from others
_ENOUGH = 64


class _Before(NamedTuple):
    """The call before of a module: where its last query ended, and one number of every value that it looked at."""

    end: int
    values: Tensor  # "*b k"


class Caches:
    """What modules looked at in self attention, call by call."""

    def __init__(self) -> None:
        self._known: dict[str, _Before] = {}

    def position(self, name: str, queries: int, behind: int, values: Tensor) -> int:  # values: "*b k v"
        """The position of the first query, which has `behind` keys before its own.

        A cache that grows holds all that was. One of a sliding window holds the last of it, so that it is behind the
        call before, if the keys are those that this one ended with.
        """
        if not values.shape[-1]:
            return behind
        before, held = self._known.get(name), values.detach()[..., 0]
        slid = before is not None and 0 < behind < before.end and _last(before.values, held[..., :behind])
        position = before.end if before is not None and slid else behind
        self._known[name] = _Before(position + queries, held[..., : behind + queries].clone())
        return position


def _last(before: Tensor, now: Tensor) -> bool:  # "*b k", "*b n"
    """Are these the last n of those before?  Of samples that a search may have chosen anew."""
    n = now.shape[-1]
    if n > before.shape[-1] or now.shape[:-1] != before.shape[:-1]:
        return False
    tail = before[..., before.shape[-1] - n :]
    if torch.equal(tail, now):
        return True
    if now.ndim < 2:
        return False
    mine, theirs = (t.reshape(t.shape[0], -1)[:, -_ENOUGH:] for t in (now, tail))
    return bool((mine.unsqueeze(1) == theirs.unsqueeze(0)).all(-1).any(1).all())
