"""Attention sinks: keys with much weight in most heads whatever the query, and maps without them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import checks
from regard.recording.analysis.derived_maps import DerivedMap, normalize_rows
from regard.recording.recorded_map import RecordedMap

# a key with a greater share of all weight is a sink  (Gu et al. 2025)
THRESHOLD = 0.3


class KeysRemoved(DerivedMap):
    """P_ij / Σ_{j ∉ S} P_ij, and 0 for j ∈ S: the weights without some keys.

    A row whose weight is on those keys alone becomes 0.
    """

    def __init__(self, weights: AttentionMap, keys: Sequence[int]) -> None:
        super().__init__(weights)
        self.keys = tuple(keys)

    def rows(self, rows: Tensor | slice) -> Tensor:
        weights = self.sources[0].rows(rows).clone()
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
    above = torch.cat([is_sink(_shares(m, sample), threshold) for m in maps])  # (all heads, k)
    in_most_heads = above.to(torch.float32).mean(0) >= most
    return tuple(int(j) for j in in_most_heads.nonzero().flatten())


def key_shares(weights: Tensor) -> Tensor:  # "*b q k" -> "*b k"
    """α_j = Σ_i P_ij / Σ_ij P_ij: the share of all weight that key j receives."""
    return normalize_rows(weights.sum(-2))


def is_sink(shares: Tensor, threshold: float = THRESHOLD) -> Tensor:  # "*b k" -> bool "*b k"
    """Whether a key is a sink of its head: its share α_j is above the threshold  (Gu et al. 2025)."""
    return shares > threshold


def _shares(recorded_map: RecordedMap, sample: int) -> Tensor:  # -> "h k"
    """The shares of the keys in every head of one sample."""
    weights = recorded_map.weights
    if len(recorded_map.shape) > 2:
        if not -recorded_map.shape[0] <= sample < recorded_map.shape[0]:
            raise IndexError(
                f"sample {sample} is not among the {recorded_map.shape[0]} of {recorded_map.name!r}; use 0"
            )
        weights = weights.pick(sample)
    total = torch.zeros(*weights.shape[:-2], weights.shape[-1], device=weights.device)
    for block in weights._chunks(weights._all_rows()):
        total = total + block.sum(-2)
    return key_shares(total.reshape(-1, 1, weights.shape[-1])).cpu()


def checked_keys(keys: Sequence[int], recorded_map: RecordedMap) -> tuple[int, ...]:
    """The keys to hide, sorted and counted from 0; raises for keys that the map does not have."""
    k = recorded_map.shape[-1]
    for j in keys:
        if isinstance(j, bool) or not isinstance(j, int):
            raise TypeError(f"keys must be whole numbers, got {j!r}; sinks() returns some")
        if not -k <= j < k:
            raise IndexError(f"key {j} is not among the {k} of {recorded_map.name!r}; use 0 to {k - 1}")
    checked = tuple(sorted({j % k for j in keys}))
    if checked and len(checked) == k:
        raise ValueError(f"all {k} keys of {recorded_map.name!r} would be hidden; leave one of them")
    return checked
