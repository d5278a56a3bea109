"""Attention sinks: keys with much weight in most heads whatever the query, and maps without them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis.derived_maps import DerivedMap, normalize_rows
from regard.recording.recorded_map import RecordedMap


class KeysRemoved(DerivedMap):
    """P_ij / Σ_{j ∉ S} P_ij, and 0 for j ∈ S: the weights without some keys.

    A row that has weight on those alone becomes 0.
    """

    def __init__(self, weights: AttentionMap, keys: Sequence[int]) -> None:
        super().__init__(weights)
        self.keys = tuple(keys)

    def rows(self, rows: Tensor | slice) -> Tensor:
        weights = self.of[0].rows(rows).clone()
        weights[..., list(self.keys)] = 0.0
        return normalize_rows(weights)


def sinks(maps: Sequence[RecordedMap], threshold: float, most: float, sample: int) -> tuple[int, ...]:
    for name, value in (("threshold", threshold), ("most", most)):
        checks.number(name, value, "sinks")
        if not 0.0 < value <= 1.0:
            raise ValueError(f"{name} must be above 0 and at most 1, got {value}; it is a share, as 0.3")
    if not maps:
        raise ValueError("sinks needs at least one map, got an empty recording; record a model that attends")
    lengths = dict.fromkeys(m.shape[-1] for m in maps)
    if len(lengths) > 1:
        raise ValueError(
            f"sinks are keys of one text, and the maps have {' and '.join(map(str, lengths))} keys; "
            "take one kind and one call, as in select(kind='self', calls=0)"
        )
    above = torch.cat([_shares(m, sample) > threshold for m in maps])  # (all heads, k)
    is_sink = above.to(torch.float32).mean(0) >= most
    return tuple(int(j) for j in is_sink.nonzero().flatten())


def _shares(recorded_map: RecordedMap, sample: int) -> Tensor:  # -> "h k"
    """α_j = Σ_i P_ij / Σ_ij P_ij of every head."""
    weights = recorded_map.weights
    if len(recorded_map.shape) > 2:
        if not -recorded_map.shape[0] <= sample < recorded_map.shape[0]:
            raise IndexError(
                f"sample {sample} is not among the {recorded_map.shape[0]} of {recorded_map.name!r}; use 0"
            )
        weights = weights.pick(sample)
    total = torch.zeros(*weights.shape[:-2], weights.shape[-1], device=weights.device)
    for block in weights._pieces(weights._all()):
        total = total + block.sum(-2)
    return normalize_rows(total.reshape(-1, weights.shape[-1])).cpu()


def checked_keys(keys: Sequence[int], recorded_map: RecordedMap) -> tuple[int, ...]:
    """The keys to hide, sorted and counted from 0; raises for keys that the map does not have."""
    k = recorded_map.shape[-1]
    for j in keys:
        if isinstance(j, bool) or not isinstance(j, int):
            raise TypeError(f"keys must be whole numbers, got {j!r}; sinks() finds some")
        if not -k <= j < k:
            raise IndexError(f"key {j} is not among the {k} of {recorded_map.name!r}; use 0 to {k - 1}")
    checked = tuple(sorted({j % k for j in keys}))
    if checked and len(checked) == k:
        raise ValueError(f"all {k} keys of {recorded_map.name!r} would be hidden; leave one of them")
    return checked
