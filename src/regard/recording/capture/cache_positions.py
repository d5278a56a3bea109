"""Positions of queries that attend to a KV cache: after its keys, or after more if a sliding window dropped some."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap, DenseMap

# count of numbers that distinguish one sample of a batch from the others
_FINGERPRINT = 64


def cached_keys(weights: AttentionMap) -> int:
    """The number of keys before the first query, if both are of one sequence.

    A cache of a fixed size is longer than the sequence: the last key that the last query may attend to is its own.
    """
    queries, keys = weights.shape[-2:]
    if queries >= keys:
        return 0
    last = slice(queries - 1, queries)
    allowed = weights.allowed(last)
    if allowed is None and isinstance(weights, DenseMap):
        allowed = weights.rows(last) > 0
    if allowed is None:
        return keys - queries
    positions = allowed.reshape(-1, keys).any(0).nonzero()
    return max(int(positions[-1]) + 1 - queries, 0) if len(positions) else keys - queries


class _PreviousCall(NamedTuple):
    """The previous call of a module: the position after its last query, and one number of every value."""

    end: int
    values: Tensor  # "*b k"


class CachePositions:
    """Follows the self attention of every module, call by call."""

    def __init__(self) -> None:
        self._previous: dict[str, _PreviousCall] = {}

    def position(self, name: str, queries: int, cached: int, values: Tensor) -> int:  # values: "*b k v"
        """The position of the first query, which has `cached` keys before its own.

        A growing cache holds all earlier keys. A sliding window holds the last of them: the keys are then the tail of
        those of the previous call, and the position continues where that call ended.
        """
        if not values.shape[-1]:
            return cached
        previous, column = self._previous.get(name), values.detach().select(-1, 0)
        slid = previous is not None and 0 < cached < previous.end and _is_tail(column[..., :cached], previous.values)
        position = previous.end if previous is not None and slid else cached
        if cached + queries < column.shape[-1]:
            column = column[..., : cached + queries]
        self._previous[name] = _PreviousCall(position + queries, column.clone())
        return position


def _is_tail(values: Tensor, previous: Tensor) -> bool:  # "*b n", "*b k"
    """Whether `values` are the last n of `previous`, in samples that a beam search may have reordered."""
    n = values.shape[-1]
    if n > previous.shape[-1] or values.shape[:-1] != previous.shape[:-1]:
        return False
    tail = previous[..., previous.shape[-1] - n :]
    if torch.equal(tail, values):
        return True
    if values.ndim < 2:
        return False
    fingerprints, tail_fingerprints = (t.reshape(t.shape[0], -1)[:, -_FINGERPRINT:] for t in (values, tail))
    return bool((fingerprints.unsqueeze(1) == tail_fingerprints.unsqueeze(0)).all(-1).any(1).all())
