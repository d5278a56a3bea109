"""Masks as the predicates they stand for, so that a long recording is not quadratic by its mask alone."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.parts.mask import Lengths, Mask, Window

# masks with fewer cells are kept as they are
LARGE = 1 << 20


class Shaped(NamedTuple):
    """A mask as a tensor with at least two axes, or as causality from a position on."""

    tensor: Tensor
    causal: int | None = None


def shaped(mask: Tensor, q: Tensor, k: Tensor) -> Shaped:
    """torch's CausalBias is told by its corner; all others by their numbers."""
    variant = getattr(mask, "variant", None)
    if variant is not None:
        upper = variant.name == "UPPER_LEFT"
        return Shaped(mask, 0 if upper else k.shape[-2] - q.shape[-2])
    return Shaped(mask if mask.ndim > 1 else mask.unsqueeze(0))


def materialized(mask: Tensor, device: torch.device) -> Tensor:
    """The mask as numbers, also where it is torch's CausalBias."""
    made = getattr(mask, "_materialize", None)
    return mask if made is None else made(device)


class Compact(NamedTuple):
    """A mask by predicates, and the position of the first query among the keys."""

    mask: Mask
    offset: int


@torch.no_grad()
def compact(allowed: Tensor) -> Compact | None:  # bool "*b q k"
    """start ≤ j < end, −left ≤ j − i − offset ≤ right: a window and padding on both sides; None if it is none of that.

    Every mask of causality, padding before or behind, and sliding windows is one. Rows with nothing allowed fit any.
    """
    if allowed.numel() < LARGE or any(n > 1 for n in allowed.shape[1:-2]):
        return None
    rows = allowed.reshape(-1, *allowed.shape[-2:])  # (b, q, k)
    queries, keys = rows.shape[-2:]
    count = rows.sum(-1)
    first = rows.to(torch.uint8).argmax(-1)
    last = keys - 1 - rows.flip(-1).to(torch.uint8).argmax(-1)
    alive = count > 0
    if not bool(((last - first + 1 == count) | ~alive).all()) or not bool(alive.any()):
        return None
    place = torch.arange(queries, device=rows.device)
    start = first.masked_fill(~alive, keys).amin(-1)
    end = last.masked_fill(~alive, -1).amax(-1) + 1
    offset, right = _side(last - place, alive & (last + 1 < end.unsqueeze(-1)), 0)
    left = _side(place - first, alive & (first > start.unsqueeze(-1)), None)[1]
    if offset is None or (left is not None and offset + left < 0):
        return None
    mask: Mask = Window(None if left is None else left + offset, right)
    padded = end < keys
    if bool(padded.any()):
        mask = mask & Lengths(end)
    if bool((start > 0).any()):
        mask = mask & ~Lengths(start)
    i, j = place + offset, torch.arange(keys, device=rows.device)
    # it may look like one and be none: every row is asked, some at a time
    step = max(1, LARGE * 16 // max(len(rows) * keys, 1))
    for at in range(0, queries, step):
        made = mask.dense(i[at : at + step], j)
        if not torch.equal(made.expand_as(rows[:, at : at + step]), rows[:, at : at + step]):
            return None
    return Compact(mask, offset)


def _side(distance: Tensor, cut: Tensor, right: int | None) -> tuple[int | None, int | None]:
    """How far rows reach that are not stopped by padding: one number for all of them, or no limit at all."""
    found = distance[cut]
    if found.numel() == 0:
        return 0, None
    low, high = int(found.min()), int(found.max())
    if low != high:
        return None, None
    return (low, 0) if right is not None else (0, low)
