"""ClipMaps: the attention over the steps and the places of one clip, out of a recording."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.models.clips.clip_attention import ClipAttention, spread
from regard.models.clips.clip_cell import ClipCell
from regard.models.clips.clip_model import ClipModel
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording


class ClipMaps(NamedTuple):
    """The share of the attention on each step, and on the places of each frame; None where a model has none."""

    steps: Tensor | None  # "t"
    places: Tensor | None  # "t rows columns"
    verified: bool


def clip_maps(recording: Recording, model: ClipModel, length: int, size: tuple[int, int] | None) -> ClipMaps:
    """The maps of a clip of so many steps, whose frames have this height and width; None stands for a signal."""
    if isinstance(model, ClipAttention):
        steps, places = _read_by(recording, "steps"), _read_by(recording, "places")
        weights = None if steps is None else _mean(steps)[0]
        if weights is not None:
            weights = spread(weights[None], torch.tensor([length]), model.encoder.stride)[0]
        drawn = None if places is None else _over_places(_rows(places)[:, 0], places.grid)
        return ClipMaps(weights, drawn, _all_verified(steps, places))
    if isinstance(model, ClipCell):
        read = None if size is None else _read_by(recording, "cell")
        drawn = None if read is None else _over_places(_mean(read), read.grid)
        return ClipMaps(None, drawn, _all_verified(read))
    gates = [item for item in recording if item.kind == "gate" and item.shape[-1] > 1]
    if not gates:
        return ClipMaps(None, None, True)
    weights = _mean(gates[-1]).mean(0)  # mean over the channels, "t·h·w"
    over_time = weights.unflatten(0, (length, -1)) if not len(weights) % length else None
    if size is None or over_time is None:
        return ClipMaps(None, None, True)
    return ClipMaps(None, _over_places(over_time, _grid(over_time.shape[1], size)), gates[-1].verified)


def _read_by(recording: Recording, name: str) -> RecordedMap | None:
    """The first map of the part of this name."""
    return next((item for item in recording if item.name.split(".")[0] == name), None)


def _rows(recorded_map: RecordedMap) -> Tensor:  # -> "b q k"
    """The weights of every sample, the mean over heads."""
    weights = recorded_map.weights.dense().float().cpu()
    return weights.reshape(weights.shape[0], -1, *weights.shape[-2:]).mean(1)


def _mean(recorded_map: RecordedMap) -> Tensor:  # -> "q k"
    return _rows(recorded_map)[0]


def _over_places(weights: Tensor, grid: tuple[int, int] | None) -> Tensor | None:  # "t p" -> "t rows columns"
    if grid is None or grid[0] * grid[1] != weights.shape[-1]:
        return None
    return weights.unflatten(-1, grid)


def _grid(places: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """The height and width of a map that was halved some times."""
    height, width = size
    while height * width > places:
        height, width = -(-height // 2), -(-width // 2)
    return (height, width) if height * width == places else None


def _all_verified(*maps: RecordedMap | None) -> bool:
    return all(item.verified for item in maps if item is not None)
