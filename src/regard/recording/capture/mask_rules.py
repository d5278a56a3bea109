"""Dense masks recognised as causal, window and padding rules, so that the mask of a long recording stays small."""

import copy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.maps.attention_map import LazyMap, SnapshotMap
from regard.attn.terms.bias import TensorBias
from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.sequence_masks import Lengths, Window

# masks with fewer cells are kept as they are: where each is examined anew, and where one is examined for all layers
LARGE, SMALL = 1 << 20, 1 << 12


class MaskTensor(NamedTuple):
    """A mask as a tensor with at least two axes, or as causality from a position on."""

    tensor: Tensor
    causal: int | None = None


def mask_tensor(mask: Tensor, q: Tensor, k: Tensor) -> MaskTensor:
    """torch's CausalBias by its corner, any other mask by its numbers."""
    variant = getattr(mask, "variant", None)
    if variant is not None:
        upper = variant.name == "UPPER_LEFT"
        return MaskTensor(mask, 0 if upper else k.shape[-2] - q.shape[-2])
    return MaskTensor(mask if mask.ndim > 1 else mask.unsqueeze(0))


def materialize(mask: Tensor, device: torch.device) -> Tensor:
    """The mask as numbers, also where it is torch's CausalBias."""
    function = getattr(mask, "_materialize", None)
    return mask if function is None else function(device)


class MaskRule(NamedTuple):
    """A mask by predicates, and the position of the first query among the keys."""

    mask: Mask
    offset: int


@torch.no_grad()
def find_rule(allowed: Tensor, least: int = LARGE) -> MaskRule | None:  # bool "*b q k"
    """start ≤ j < end, −left ≤ j − i − offset ≤ right: a window and padding on both sides; None if no such rule fits.

    It fits every mask of causality, padding before or after, and sliding windows. Rows that allow nothing fit any rule.
    A mask of fewer cells than `least` is not examined.
    """
    if allowed.numel() < least or any(n > 1 for n in allowed.shape[1:-2]):
        return None
    rows = allowed.reshape(-1, *allowed.shape[-2:])  # (b, q, k)
    queries, keys = rows.shape[-2:]
    count = rows.sum(-1)
    first = rows.to(torch.uint8).argmax(-1)
    last = keys - 1 - rows.flip(-1).to(torch.uint8).argmax(-1)
    alive = count > 0
    if not bool(((last - first + 1 == count) | ~alive).all()) or not bool(alive.any()):
        return None
    position = torch.arange(queries, device=rows.device)
    start = first.masked_fill(~alive, keys).amin(-1)
    end = last.masked_fill(~alive, -1).amax(-1) + 1
    offset, right = _reach(last - position, alive & (last + 1 < end.unsqueeze(-1)), 0)
    left = _reach(position - first, alive & (first > start.unsqueeze(-1)), None)[1]
    if offset is None or (left is not None and offset + left < 0):
        return None
    mask: Mask = Window(None if left is None else left + offset, right)
    padded = end < keys
    if bool(padded.any()):
        mask = mask & Lengths(end)
    if bool((start > 0).any()):
        mask = mask & ~Lengths(start)
    i, j = position + offset, torch.arange(keys, device=rows.device)
    # the rule was derived from the ends of the rows: compare it with every cell, some rows at a time
    step = max(1, LARGE * 16 // max(len(rows) * keys, 1))
    for at in range(0, queries, step):
        dense = mask.dense(i[at : at + step], j)
        if not torch.equal(dense.expand_as(rows[:, at : at + step]), rows[:, at : at + step]):
            return None
    return MaskRule(mask, offset)


def _reach(distance: Tensor, cut: Tensor, right: int | None) -> tuple[int | None, int | None]:
    """The reach of the rows that end before the padding (`cut`): one number for all of them, or no limit."""
    reaches = distance[cut]
    if reaches.numel() == 0:
        return 0, None
    low, high = int(reaches.min()), int(reaches.max())
    if low != high:
        return None, None
    return (low, 0) if right is not None else (0, low)


class MaskCompressor:
    """Replaces dense masks by rules; a mask that the layers of a model share is examined once."""

    def __init__(self) -> None:
        # references, so that no other tensor takes their places in memory
        self._examined: list[tuple[Tensor, int, MaskRule | None]] = []

    def compress(self, weights: SnapshotMap) -> SnapshotMap:
        """The same map, its boolean or additive mask replaced by a rule if it follows one."""
        if not isinstance(weights, LazyMap):
            return weights
        call = weights.call
        t = _mask_matrix(call)
        rule = None if t is None else self._rule(t)
        if rule is None:
            return weights
        i = torch.arange(rule.offset, rule.offset + call.queries.shape[-2], device=call.q.device)
        compressed = copy.copy(weights)
        j = torch.arange(call.keys.shape[-2], device=call.q.device)
        compressed.call = replace(call, bias=None, mask=rule.mask, explicit_positions=(i, j))
        return compressed

    def _rule(self, t: Tensor) -> MaskRule | None:
        version = -1 if t.is_inference() else t._version
        for examined, examined_version, rule in self._examined:
            same = examined.data_ptr() == t.data_ptr() and examined.shape == t.shape and examined.stride() == t.stride()
            if same and examined.dtype == t.dtype and examined_version == version >= 0:
                return rule
        rule = _rule_of(t)
        self._examined = [*self._examined[-3:], (t, version, rule)]
        return rule


def _mask_matrix(call: AttentionCall) -> Tensor | None:
    """The mask or additive bias of a call, if it is the only one, equal for all heads, and large enough to matter."""
    if isinstance(call.bias, TensorBias) and call.mask is None:
        t = call.bias.values
    elif type(call.mask) is BooleanMask and call.bias is None:
        t = call.mask.allowed
    else:
        return None
    shape = (call.queries.shape[-2], call.keys.shape[-2])
    is_full = t.ndim == len(call.batch) + 2 and all(n == 1 for n in t.shape[1:-2])
    return t if t.numel() >= SMALL and t.shape[-2:] == shape and (t.ndim == 2 or is_full) else None


@torch.no_grad()
def _rule_of(t: Tensor) -> MaskRule | None:
    if t.dtype == torch.bool:
        return find_rule(t, SMALL)
    allowed = t > torch.finfo(t.dtype).min / 2
    # numbers that do more than hide are a bias; the softmax of a row that is hidden as a whole has equal weights
    if bool((t.masked_fill(~allowed, 0.0) != 0).any()) or not bool(allowed.any(-1).all()):
        return None
    return find_rule(allowed, SMALL)
