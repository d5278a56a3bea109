"""Indices of a map: one whole number, several rows, what is picked of what was picked before."""

import operator

import torch
from torch import Tensor


def whole(index: object) -> int | None:
    """An index that is one whole number, however it is written."""
    if isinstance(index, slice | list | tuple) or getattr(index, "ndim", 0) > 0:
        return None
    return operator.index(index)  # type: ignore[arg-type]


def several(rows: object, count: int, device: torch.device) -> Tensor | slice:
    """Rows as an index that keeps the axis."""
    one = whole(rows)
    if one is not None:
        if not -count <= one < count:
            raise IndexError(f"row {one} is not in a map of {count} rows; use 0 to {count - 1}")
        return slice(one % count, one % count + 1)
    if isinstance(rows, slice):
        return rows
    found = torch.as_tensor(rows, device=device)
    if found.dtype != torch.bool and found.numel() and not (-count <= found.min() and found.max() < count):
        raise IndexError(f"rows {found.tolist()} are not all in a map of {count} rows; use 0 to {count - 1}")
    return found


def after(
    picked: tuple[int | slice, ...], index: tuple[int | slice, ...], batch: tuple[int, ...]
) -> tuple[int | slice, ...]:
    """What `index` takes of what was `picked` before, as one index of all axes."""
    whole = [*picked, *[slice(None)] * (len(batch) - len(picked))]
    left = [(axis, range(batch[axis])[one]) for axis, one in enumerate(whole) if isinstance(one, slice)]
    for (axis, before), one in zip(left, index, strict=False):
        if isinstance(one, slice):
            taken = before[one]
            whole[axis] = slice(taken.start, taken.stop, taken.step)
        elif -len(before) <= one < len(before):
            whole[axis] = before[one]
        else:
            raise IndexError(
                f"{one} is not on axis {axis} of a map, which has {len(before)}; use 0 to {len(before) - 1}"
            )
    return tuple(whole)
