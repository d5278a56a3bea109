"""Maps derived from other maps, row by row: rows are computed when they are read, and no matrix is kept."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import Kind, RecordedMap


class DerivedMap(AttentionMap):
    """A map whose rows are computed from those of others with the same leading axes."""

    def __init__(self, *of: AttentionMap) -> None:
        self.of = of

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of[0].shape

    @property
    def device(self) -> torch.device:
        return self.of[0].device

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        selected = copy.copy(self)
        selected.of = tuple(part.pick(*index) for part in self.of)
        return selected


class IndexedMap(AttentionMap):
    """An index into the leading axes of a map that can only be computed whole."""

    def __init__(self, of: AttentionMap, index: tuple[int | slice, ...]) -> None:
        self.of, self.index = of, index

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(torch.empty(self.of.shape, device="meta")[self.index].shape)

    @property
    def device(self) -> torch.device:
        return self.of.device

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.of.rows(rows)[self.index]

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self.of.allowed(rows)
        return None if allowed is None else allowed[self.index]

    def _each(self) -> int:
        return self.of._each()

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index)


class HeadStack(DerivedMap):
    """Maps side by side along the axis of the heads."""

    @property
    def shape(self) -> tuple[int, ...]:
        first = self.of[0].shape
        return (*first[:-3], sum(part.shape[-3] for part in self.of), *first[-2:])

    def rows(self, rows: Tensor | slice) -> Tensor:
        return torch.cat([part.rows(rows) for part in self.of], dim=-3)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = _allowed_of_each(self.of, rows)
        return None if allowed is None else torch.cat(allowed, dim=-3)

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index) if len(index) >= len(self.shape) - 2 else super()._at(index)


class HeadMean(DerivedMap):
    """1/H Σ_h P_h, with an axis of one head."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.of[0].shape[:-3], 1, *self.of[0].shape[-2:])

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.of[0].rows(rows).mean(-3, keepdim=True)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = self.of[0].allowed(rows)
        return None if allowed is None else allowed.any(-3, keepdim=True)

    def _each(self) -> int:
        return self.of[0]._each()

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index) if len(index) >= len(self.shape) - 2 else super()._at(index)


class Mean(DerivedMap):
    """1/L Σ_l P_l of maps of one shape."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        total = self.of[0].rows(rows).clone()
        for part in self.of[1:]:
            total += part.rows(rows)
        return total / len(self.of)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = _allowed_of_each(self.of, rows)
        return None if allowed is None else torch.stack(allowed).any(0)


class Difference(DerivedMap):
    """P − Q."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.of[0].rows(rows) - self.of[1].rows(rows)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = _allowed_of_each(self.of, rows)
        return None if allowed is None else torch.stack(allowed).any(0)


class RowNormalized(DerivedMap):
    """P_ij / Σ_j P_ij; a row of zeros stays zero."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        return normalize_rows(self.of[0].rows(rows))

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        return self.of[0].allowed(rows)


class StitchedMap(DerivedMap):
    """Maps of consecutive queries below one another, as wide as the widest: keys of later steps have weight 0.

    A step of a generation has the queries of that step and all keys so far, so the result is the square map of one
    forward pass over the finished text.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, _, _ = self.of[0].shape
        return (*batch, sum(part.shape[-2] for part in self.of), max(part.shape[-1] for part in self.of))

    def rows(self, rows: Tensor | slice) -> Tensor:
        *batch, q, k = self.shape
        wanted = torch.arange(q, device=self.device)[rows]
        out: Tensor | None = None
        start = 0
        for part in self.of:
            inside = (wanted >= start) & (wanted < start + part.shape[-2])
            if bool(inside.any()):
                weights = part.rows(wanted[inside] - start)
                out = weights.new_zeros(*batch, len(wanted), k) if out is None else out
                out[..., inside, : weights.shape[-1]] = weights
            start += part.shape[-2]
        return torch.zeros(*batch, 0, k, device=self.device) if out is None else out

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        """Not the keys of later steps."""
        *batch, q, k = self.shape
        if all(part.shape[-1] == k and part.allowed(slice(0, 0)) is None for part in self.of):
            return None
        wanted = torch.arange(q, device=self.device)[rows]
        out = torch.zeros(*batch, len(wanted), k, dtype=torch.bool, device=self.device)
        start = 0
        for part in self.of:
            inside = ((wanted >= start) & (wanted < start + part.shape[-2])).nonzero().squeeze(-1)
            if len(inside):
                allowed = part.allowed(wanted[inside] - start)
                out[..., inside, : part.shape[-1]] = True if allowed is None else allowed
            start += part.shape[-2]
        return out


class ShiftedMap(DerivedMap):
    """A map whose first key is key `first` of the text: the keys before it are not allowed and have weight 0."""

    def __init__(self, of: AttentionMap, first: int) -> None:
        super().__init__(of)
        self.first = first

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, q, k = self.of[0].shape
        return (*batch, q, self.first + k)

    def rows(self, rows: Tensor | slice) -> Tensor:
        return torch.nn.functional.pad(self.of[0].rows(rows), (self.first, 0))

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        allowed = _allowed_of_each(self.of, rows)
        if allowed is None:
            *batch, q, k = self.of[0].shape
            count = len(torch.arange(q, device=self.device)[rows])
            allowed = [torch.ones(*batch, count, k, dtype=torch.bool, device=self.device)]
        return torch.nn.functional.pad(allowed[0], (self.first, 0))


def stitch_windows(of: Sequence[AttentionMap]) -> StitchedMap:
    """Steps from the first on, each of which attends to the last keys so far: those that its cache still held."""
    shifted, end = [], 0
    for part in of:
        end += part.shape[-2]
        shifted.append(ShiftedMap(part, end - part.shape[-1]) if end > part.shape[-1] else part)
    return StitchedMap(*shifted)


def _allowed_of_each(of: Sequence[AttentionMap], rows: Tensor | slice) -> list[Tensor] | None:
    """The allowed keys of every map; None if no mask is known of any."""
    masks = [part.allowed(rows) for part in of]
    if all(mask is None for mask in masks):
        return None
    counts = [len(torch.arange(part.shape[-2], device=part.device)[rows]) for part in of]
    return [
        torch.ones(*part.shape[:-2], count, part.shape[-1], dtype=torch.bool, device=part.device)
        if mask is None
        else mask
        for part, count, mask in zip(of, counts, masks, strict=True)
    ]


def normalize_rows(weights: Tensor) -> Tensor:  # "*b q k" -> "*b q k"
    """Rows that sum to one; a row of zeros stays zero."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


def derive(
    name: str, kind: Kind, weights: AttentionMap, of: Sequence[RecordedMap], how: str, call: int = 0
) -> RecordedMap:
    """A map computed from recorded maps, with the greatest of their certificates; one that is not verified leaves the
    result unverified."""
    verified = all(m.verified for m in of)
    sources = dict.fromkeys(m.captured_from for m in of)
    return RecordedMap(
        name,
        kind,
        weights,
        call=call,
        certificate=max(m.certificate or 0.0 for m in of) if verified else None,
        tolerance=max(m.tolerance for m in of),
        captured_from=f"{how} of {', '.join(sources)}",
        grid=of[0].grid if len({m.grid for m in of}) == 1 else None,
    )


def replace_weights(recorded_map: RecordedMap, weights: AttentionMap, how: str) -> RecordedMap:
    """The same call with other weights, computed from its own."""
    heads = recorded_map.heads if weights.shape[:-2] == recorded_map.shape[:-2] else None
    return replace(
        derive(recorded_map.name, recorded_map.kind, weights, [recorded_map], how, recorded_map.call),
        step=recorded_map.step,
        rows=recorded_map.rows,
        heads=heads,
    )
