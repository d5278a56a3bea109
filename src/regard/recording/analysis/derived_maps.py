"""Maps derived from other maps (mean, difference, stitched steps), whose rows are computed when they are read."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import Kind, RecordedMap


class DerivedMap(AttentionMap):
    """A map whose rows are computed from rows of other maps with the same leading axes."""

    def __init__(self, *sources: AttentionMap) -> None:
        self.sources = sources

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sources[0].shape

    @property
    def device(self) -> torch.device:
        return self.sources[0].device

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        selected = copy.copy(self)
        selected.sources = tuple(part.pick(*index) for part in self.sources)
        return selected


class IndexedMap(AttentionMap):
    """An index into the leading axes of a map that can only be computed whole."""

    def __init__(self, source: AttentionMap, index: tuple[int | slice, ...]) -> None:
        self.source, self.index = source, index

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(torch.empty(self.source.shape, device="meta")[self.index].shape)

    @property
    def device(self) -> torch.device:
        return self.source.device

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.source.rows(rows)[self.index]

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self.source.allowed(rows)
        return None if allowed is None else allowed[self.index]

    def _weights_per_row(self) -> int:
        return self.source._weights_per_row()

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index)


class HeadStack(DerivedMap):
    """Maps side by side along the axis of the heads."""

    @property
    def shape(self) -> tuple[int, ...]:
        first = self.sources[0].shape
        return (*first[:-3], sum(part.shape[-3] for part in self.sources), *first[-2:])

    def rows(self, rows: Tensor | slice) -> Tensor:
        return torch.cat([part.rows(rows) for part in self.sources], dim=-3)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = _allowed_masks(self.sources, rows)
        return None if allowed is None else torch.cat(allowed, dim=-3)

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index) if len(index) >= len(self.shape) - 2 else super()._select(index)


class HeadMean(DerivedMap):
    """1/H Σ_h P_h, with an axis of one head."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.sources[0].shape[:-3], 1, *self.sources[0].shape[-2:])

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.sources[0].rows(rows).mean(-3, keepdim=True)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self.sources[0].allowed(rows)
        return None if allowed is None else allowed.any(-3, keepdim=True)

    def _weights_per_row(self) -> int:
        return self.sources[0]._weights_per_row()

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index) if len(index) >= len(self.shape) - 2 else super()._select(index)


class CellwiseMap(DerivedMap):
    """A map of maps of one shape, cell by cell or row by row: a key is allowed where one of them allows it."""

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = _allowed_masks(self.sources, rows)
        return None if allowed is None else torch.stack(allowed).any(0)


class Mean(CellwiseMap):
    """1/L Σ_l P_l of maps of one shape."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        total = self.sources[0].rows(rows).clone()
        for part in self.sources[1:]:
            total += part.rows(rows)
        return total / len(self.sources)


class Difference(CellwiseMap):
    """P − Q."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.sources[0].rows(rows) - self.sources[1].rows(rows)


class RowNormalized(CellwiseMap):
    """P_ij / Σ_j P_ij; a row of zeros stays zero."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        return normalize_rows(self.sources[0].rows(rows))


class StitchedMap(DerivedMap):
    """Maps of consecutive queries below one another, as wide as the widest: keys of later steps have weight 0.

    A step of a generation has the queries of that step and all keys so far, so the result is the square map of one
    forward pass over the finished text.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, _, _ = self.sources[0].shape
        return (*batch, sum(part.shape[-2] for part in self.sources), max(part.shape[-1] for part in self.sources))

    def rows(self, rows: Tensor | slice) -> Tensor:
        *batch, q, k = self.shape
        indices = torch.arange(q, device=self.device)[rows]
        out: Tensor | None = None
        start = 0
        for part in self.sources:
            inside = (indices >= start) & (indices < start + part.shape[-2])
            if bool(inside.any()):
                weights = part.rows(indices[inside] - start)
                out = weights.new_zeros(*batch, len(indices), k) if out is None else out
                out[..., inside, : weights.shape[-1]] = weights
            start += part.shape[-2]
        return torch.zeros(*batch, 0, k, device=self.device) if out is None else out

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        """Not the keys of later steps."""
        *batch, q, k = self.shape
        if all(part.shape[-1] == k and part.allowed(slice(0, 0)) is None for part in self.sources):
            return None
        indices = torch.arange(q, device=self.device)[rows]
        out = torch.zeros(*batch, len(indices), k, dtype=torch.bool, device=self.device)
        start = 0
        for part in self.sources:
            inside = ((indices >= start) & (indices < start + part.shape[-2])).nonzero().squeeze(-1)
            if len(inside):
                allowed = part.allowed(indices[inside] - start)
                out[..., inside, : part.shape[-1]] = True if allowed is None else allowed
            start += part.shape[-2]
        return out


class ShiftedMap(DerivedMap):
    """A map whose first key is key `first` of the text: the keys before it are not allowed and have weight 0."""

    def __init__(self, source: AttentionMap, first: int) -> None:
        super().__init__(source)
        self.first = first

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, q, k = self.sources[0].shape
        return (*batch, q, self.first + k)

    def rows(self, rows: Tensor | slice) -> Tensor:
        return torch.nn.functional.pad(self.sources[0].rows(rows), (self.first, 0))

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self.sources[0].allowed(rows)
        allowed = _all_allowed(self.sources[0], rows) if allowed is None else allowed
        return torch.nn.functional.pad(allowed, (self.first, 0))


def stitch_windows(steps: Sequence[AttentionMap]) -> StitchedMap:
    """Steps from the first on, each of which attends to the last keys so far: those that its cache still held."""
    shifted, end = [], 0
    for step in steps:
        end += step.shape[-2]
        shifted.append(ShiftedMap(step, end - step.shape[-1]) if end > step.shape[-1] else step)
    return StitchedMap(*shifted)


def _allowed_masks(maps: Sequence[AttentionMap], rows: Tensor | slice) -> list[Tensor] | None:
    """The allowed keys of every map; None if no mask is known of any."""
    masks = [attention_map.allowed(rows) for attention_map in maps]
    if all(mask is None for mask in masks):
        return None
    return [
        _all_allowed(attention_map, rows) if mask is None else mask
        for attention_map, mask in zip(maps, masks, strict=True)
    ]


def _all_allowed(attention_map: AttentionMap, rows: Tensor | slice) -> Tensor:
    *batch, q, k = attention_map.shape
    count = len(torch.arange(q, device=attention_map.device)[rows])
    return torch.ones(*batch, count, k, dtype=torch.bool, device=attention_map.device)


def normalize_rows(weights: Tensor) -> Tensor:  # "*b q k" -> "*b q k"
    """Rows that sum to one; a row of zeros stays zero."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


def derive(
    name: str, kind: Kind, weights: AttentionMap, maps: Sequence[RecordedMap], operation: str, call: int = 0
) -> RecordedMap:
    """A map computed from recorded maps, with the greatest of their certificates; one that is not verified leaves the
    result unverified."""
    verified = all(m.verified for m in maps)
    sources = dict.fromkeys(m.captured_from for m in maps)
    return RecordedMap(
        name,
        kind,
        weights,
        call=call,
        certificate=max(m.certificate or 0.0 for m in maps) if verified else None,
        tolerance=max(m.tolerance for m in maps),
        captured_from=f"{operation} of {', '.join(sources)}",
        grid=maps[0].grid if len({m.grid for m in maps}) == 1 else None,
    )


def replace_weights(recorded_map: RecordedMap, weights: AttentionMap, operation: str) -> RecordedMap:
    """The same call with other weights, computed from its own."""
    heads = recorded_map.heads if weights.shape[:-2] == recorded_map.shape[:-2] else None
    return replace(
        derive(recorded_map.name, recorded_map.kind, weights, [recorded_map], operation, recorded_map.call),
        step=recorded_map.step,
        rows=recorded_map.rows,
        is_reversed=recorded_map.is_reversed,
        heads=heads,
    )
