"""Looks: what was recorded while a model looked at pictures, as maps over the places of each.

Whatever attends to places is one: a gate, an attention over them, a glimpse, a look a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording

# cells of a map in an answer, each way: more are averaged
CELLS = 64
# one look a row, each of its own; of other kinds the rows are channels, or places that all look
_STEPS = ("alignment", "cross", "glimpse")


@dataclass(frozen=True, eq=False)
class SpatialMap:
    """Where a module looked: weights over the places of the picture, one look or one a step, "steps h w"."""

    name: str
    kind: str
    verified: bool
    weights: Tensor


def spatial_maps(tape: Recording, sample: int) -> tuple[SpatialMap, ...]:
    """The maps of one picture, of modules that look at places: one each, or one a grid, which then is in its name."""
    calls: dict[str, dict[tuple[int, int], list[RecordedMap]]] = {}
    for one in tape:
        if one.grid is not None:
            calls.setdefault(one.name, {}).setdefault(one.grid, []).append(one)
    return tuple(
        SpatialMap(
            (name or "model") + (f", {grid[0]} × {grid[1]}" if len(grids) > 1 else ""),
            some[0].kind,
            all(one.verified for one in some),
            _joined(some, sample),
        )
        for name, grids in calls.items()
        for grid, some in grids.items()
    )


def _joined(calls: Sequence[RecordedMap], sample: int) -> Tensor:  # -> "steps h w"
    """One look below the other: of calls that are steps, all of them; otherwise the mean."""
    found = torch.cat([_look(one, sample) for one in calls])
    if calls[0].kind not in _STEPS:
        found = found.mean(0, keepdim=True)
    high, wide = (min(n, CELLS) for n in found.shape[-2:])
    return F.adaptive_avg_pool2d(found, (high, wide))


def _look(one: RecordedMap, sample: int) -> Tensor:  # -> "steps h w"
    assert one.grid is not None
    weights = one.weights.pick(sample).dense()  # "*heads q k"
    weights = weights.reshape(-1, *weights.shape[-2:]).mean(0)[:, -one.grid[0] * one.grid[1] :]
    if one.kind not in _STEPS:
        weights = weights.mean(0, keepdim=True)
    return weights.float().cpu().unflatten(-1, one.grid)
