"""Index arithmetic of attention maps: integers, rows, and an index applied to an already indexed map."""

import operator

import torch
from torch import Tensor


def as_int(index: object) -> int | None:
    """The index as an int if it is a single integer of any type; otherwise None."""
    if isinstance(index, slice | list | tuple) or getattr(index, "ndim", 0) > 0:
        return None
    if not hasattr(index, "__index__"):
        name = "..." if index is ... else repr(index)
        raise TypeError(
            f"a map is indexed by integers, slices and lists, one per axis, got {name}; write : for a whole axis"
        )
    return operator.index(index)


def row_index(rows: object, count: int, device: torch.device) -> Tensor | slice:
    """The rows as an index that keeps the axis."""
    row = as_int(rows)
    if row is not None:
        if not -count <= row < count:
            raise IndexError(f"row {row} is not in a map of {count} rows; use 0 to {count - 1}")
        return slice(row % count, row % count + 1)
    if isinstance(rows, slice):
        return rows
    index = torch.as_tensor(rows, device=device)
    if index.dtype != torch.bool and index.numel() and not (-count <= index.min() and index.max() < count):
        raise IndexError(f"rows {index.tolist()} are not all in a map of {count} rows; use 0 to {count - 1}")
    return index


def compose(
    picked: tuple[int | slice, ...], index: tuple[int | slice, ...], batch: tuple[int, ...]
) -> tuple[int | slice, ...]:
    """Composes `index` with the index `picked` that was applied before, as one index of all axes."""
    composed = [*picked, *[slice(None)] * (len(batch) - len(picked))]
    remaining = [(axis, range(batch[axis])[item]) for axis, item in enumerate(composed) if isinstance(item, slice)]
    for (axis, entries), item in zip(remaining, index, strict=False):
        if isinstance(item, slice):
            selected = entries[item]
            composed[axis] = slice(selected.start, selected.stop, selected.step)
        elif -len(entries) <= item < len(entries):
            composed[axis] = entries[item]
        else:
            raise IndexError(
                f"{item} is not on axis {axis} of a map, which has {len(entries)}; use 0 to {len(entries) - 1}"
            )
    return tuple(composed)
