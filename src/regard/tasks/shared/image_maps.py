"""SpatialMap: the attention of a module over the patches of an image, out of a recording.

Every map over patches is one: of a gate, of self-attention, of a glimpse, of a word of a caption.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.recording.recorded_map import KINDS, RecordedMap
from regard.recording.recording import Recording

# the largest height and width of a map; larger ones are averaged
CELLS = 64


@dataclass(frozen=True, eq=False)
class SpatialMap:
    """The weights of a module over the patches of an image, "steps h w": one step, or several if it takes steps."""

    name: str
    kind: str
    verified: bool
    weights: Tensor


def spatial_maps(recording: Recording, sample: int) -> tuple[SpatialMap, ...]:
    """The maps of one image: one per module, or one per module and grid, with the grid in its name."""
    calls: dict[str, dict[tuple[int, int], list[RecordedMap]]] = {}
    for recorded_map in recording:
        if recorded_map.grid is not None:
            calls.setdefault(recorded_map.name, {}).setdefault(recorded_map.grid, []).append(recorded_map)
    return tuple(
        SpatialMap(
            (name or "model") + (f", {grid[0]} × {grid[1]}" if len(grids) > 1 else ""),
            maps[0].kind,
            all(recorded_map.verified for recorded_map in maps),
            _join_calls(maps, sample),
        )
        for name, grids in calls.items()
        for grid, maps in grids.items()
    )


def _join_calls(calls: Sequence[RecordedMap], sample: int) -> Tensor:  # -> "steps h w"
    """The calls of a module one below the other, if they are steps; otherwise their mean."""
    weights = torch.cat([_weights(recorded_map, sample) for recorded_map in calls])
    if not KINDS[calls[0].kind].has_steps:
        weights = weights.mean(0, keepdim=True)
    height, width = (min(n, CELLS) for n in weights.shape[-2:])
    return F.adaptive_avg_pool2d(weights, (height, width))


def _weights(recorded_map: RecordedMap, sample: int) -> Tensor:  # -> "steps h w"
    assert recorded_map.grid is not None
    weights = recorded_map.weights.pick(sample).dense()  # "*heads q k"
    weights = weights.reshape(-1, *weights.shape[-2:]).mean(0)[:, -recorded_map.grid[0] * recorded_map.grid[1] :]
    if not KINDS[recorded_map.kind].has_steps:
        weights = weights.mean(0, keepdim=True)
    return weights.float().cpu().unflatten(-1, recorded_map.grid)
