"""Sinks: keys that most heads look at whatever the query, and maps without them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis.derived_maps import DerivedMap, shared
from regard.recording.recorded_map import RecordedMap


class KeysRemoved(DerivedMap):
    """P_ij / Σ_{j ∉ S} P_ij, and nothing for j ∈ S: what the queries look at apart from some keys.

    A row that looked at those alone is left with nothing.
    """

    def __init__(self, weights: AttentionMap, keys: Sequence[int]) -> None:
        super().__init__(weights)
        self.keys = tuple(keys)

    def rows(self, rows: Tensor | slice) -> Tensor:
        left = self.of[0].rows(rows).clone()
        left[..., list(self.keys)] = 0.0
        return shared(left)


def sinks(maps: Sequence[RecordedMap], threshold: float, most: float, sample: int) -> tuple[int, ...]:
    for name, value in (("threshold", threshold), ("most", most)):
        checks.number(name, value, "sinks")
        if not 0.0 < value <= 1.0:
            raise ValueError(f"{name} must be above 0 and at most 1, got {value}; it is a share, as 0.3")
    if not maps:
        raise ValueError("sinks needs at least one map, got an empty recording; record a model that attends")
    wide = dict.fromkeys(one.shape[-1] for one in maps)
    if len(wide) > 1:
        raise ValueError(
            f"sinks are keys of one text, and the maps have {' and '.join(map(str, wide))} keys; "
            "take one kind and one call, as in select(kind='self', calls=0)"
        )
    above = torch.cat([_shares(one, sample) > threshold for one in maps])  # (all heads, k)
    found = above.to(torch.float32).mean(0) >= most
    return tuple(int(j) for j in found.nonzero().flatten())


def _shares(one: RecordedMap, sample: int) -> Tensor:  # -> "h k"
    """α_j = Σ_i P_ij / Σ_ij P_ij of every head."""
    weights = one.weights
    if len(one.shape) > 2:
        if not -one.shape[0] <= sample < one.shape[0]:
            raise IndexError(f"sample {sample} is not among the {one.shape[0]} of {one.name!r}; use 0")
        weights = weights.pick(sample)
    total = torch.zeros(*weights.shape[:-2], weights.shape[-1], device=weights.device)
    for piece in weights._pieces(weights._all()):
        total = total + piece.sum(-2)
    return shared(total.reshape(-1, weights.shape[-1])).cpu()


def hidden(keys: Sequence[int], one: RecordedMap) -> tuple[int, ...]:
    """Which keys of this map are hidden, checked."""
    k = one.shape[-1]
    for j in keys:
        if isinstance(j, bool) or not isinstance(j, int):
            raise TypeError(f"keys must be whole numbers, got {j!r}; sinks() finds some")
        if not -k <= j < k:
            raise IndexError(f"key {j} is not among the {k} of {one.name!r}; use 0 to {k - 1}")
    found = tuple(sorted({j % k for j in keys}))
    if found and len(found) == k:
        raise ValueError(f"all {k} keys of {one.name!r} would be hidden; leave one of them")
    return found
