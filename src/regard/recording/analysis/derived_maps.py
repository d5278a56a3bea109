"""Maps made of maps, row by row: nothing is computed before it is looked at, and no matrix is kept."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.recording.recorded_map import Kind, RecordedMap


class DerivedMap(AttentionMap):
    """A map whose rows are worked out from those of others with the same leading axes."""

    def __init__(self, *of: AttentionMap) -> None:
        self.of = of

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of[0].shape

    @property
    def device(self) -> torch.device:
        return self.of[0].device

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        picked = copy.copy(self)
        picked.of = tuple(one.pick(*index) for one in self.of)
        return picked


class IndexedMap(AttentionMap):
    """Some of the leading axes of a map that can only be worked out whole."""

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
        found = self.of.allowed(rows)
        return None if found is None else found[self.index]

    def _each(self) -> int:
        return self.of._each()

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index)


class HeadStack(DerivedMap):
    """Maps side by side along the axis of the heads."""

    @property
    def shape(self) -> tuple[int, ...]:
        first = self.of[0].shape
        return (*first[:-3], sum(one.shape[-3] for one in self.of), *first[-2:])

    def rows(self, rows: Tensor | slice) -> Tensor:
        return torch.cat([one.rows(rows) for one in self.of], dim=-3)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        found = _each_allowed(self.of, rows)
        return None if found is None else torch.cat(found, dim=-3)

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
        found = self.of[0].allowed(rows)
        return None if found is None else found.any(-3, keepdim=True)

    def _each(self) -> int:
        return self.of[0]._each()

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index) if len(index) >= len(self.shape) - 2 else super()._at(index)


class Mean(DerivedMap):
    """1/L Σ_l P_l of maps of one shape."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        total = self.of[0].rows(rows).clone()
        for one in self.of[1:]:
            total += one.rows(rows)
        return total / len(self.of)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        found = _each_allowed(self.of, rows)
        return None if found is None else torch.stack(found).any(0)


class Difference(DerivedMap):
    """P − Q."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        return self.of[0].rows(rows) - self.of[1].rows(rows)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        found = _each_allowed(self.of, rows)
        return None if found is None else torch.stack(found).any(0)


class RowNormalized(DerivedMap):
    """P_ij / Σ_j P_ij; a row of nothing stays nothing."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        return shared(self.of[0].rows(rows))

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        return self.of[0].allowed(rows)


class Stitched(DerivedMap):
    """Maps of consecutive queries below one another, as wide as the widest: keys that were not there yet get nothing.

    A step of a generation has the queries of that step and all keys so far, so the whole is the square that one
    forward pass over the finished text would have.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, _, _ = self.of[0].shape
        return (*batch, sum(one.shape[-2] for one in self.of), max(one.shape[-1] for one in self.of))

    def rows(self, rows: Tensor | slice) -> Tensor:
        *batch, q, k = self.shape
        wanted = torch.arange(q, device=self.device)[rows]
        out: Tensor | None = None
        start = 0
        for one in self.of:
            here = (wanted >= start) & (wanted < start + one.shape[-2])
            if bool(here.any()):
                found = one.rows(wanted[here] - start)
                out = found.new_zeros(*batch, len(wanted), k) if out is None else out
                out[..., here, : found.shape[-1]] = found
            start += one.shape[-2]
        return torch.zeros(*batch, 0, k, device=self.device) if out is None else out

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        """None of the keys that were not there yet."""
        *batch, q, k = self.shape
        if all(one.shape[-1] == k and one.allowed(slice(0, 0)) is None for one in self.of):
            return None
        wanted = torch.arange(q, device=self.device)[rows]
        out = torch.zeros(*batch, len(wanted), k, dtype=torch.bool, device=self.device)
        start = 0
        for one in self.of:
            here = ((wanted >= start) & (wanted < start + one.shape[-2])).nonzero().squeeze(-1)
            if len(here):
                found = one.allowed(wanted[here] - start)
                out[..., here, : one.shape[-1]] = True if found is None else found
            start += one.shape[-2]
        return out


class ShiftedMap(DerivedMap):
    """A map whose first key is another one of the text: nothing, which is not allowed, for all that come before."""

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
        found = _each_allowed(self.of, rows)
        if found is None:
            *batch, q, k = self.of[0].shape
            count = len(torch.arange(q, device=self.device)[rows])
            found = [torch.ones(*batch, count, k, dtype=torch.bool, device=self.device)]
        return torch.nn.functional.pad(found[0], (self.first, 0))


def windows(of: Sequence[AttentionMap]) -> Stitched:
    """Steps from the first on, of which each looks at the last keys so far: those that its cache still held."""
    later, end = [], 0
    for one in of:
        end += one.shape[-2]
        later.append(ShiftedMap(one, end - one.shape[-1]) if end > one.shape[-1] else one)
    return Stitched(*later)


def _each_allowed(of: Sequence[AttentionMap], rows: Tensor | slice) -> list[Tensor] | None:
    """What is allowed in each of some maps; None if no mask is known of any."""
    found = [one.allowed(rows) for one in of]
    if all(one is None for one in found):
        return None
    asked = [torch.arange(one.shape[-2], device=one.device)[rows] for one in of]
    return [
        torch.ones(*one.shape[:-2], len(some), one.shape[-1], dtype=torch.bool, device=one.device)
        if got is None
        else got
        for one, some, got in zip(of, asked, found, strict=True)
    ]


def shared(weights: Tensor) -> Tensor:  # "*b q k" -> "*b q k"
    """Rows that sum to one; a row of nothing stays nothing."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


def made(
    name: str, kind: Kind, weights: AttentionMap, of: Sequence[RecordedMap], how: str, call: int = 0
) -> RecordedMap:
    """What was worked out from recorded maps. It is as sure as the least sure of them: one that is not verified leaves
    the whole unverified."""
    sure = all(one.verified for one in of)
    heard = dict.fromkeys(one.captured_from for one in of)
    return RecordedMap(
        name,
        kind,
        weights,
        call=call,
        certificate=max(one.certificate or 0.0 for one in of) if sure else None,
        tolerance=max(one.tolerance for one in of),
        captured_from=f"{how} of {', '.join(heard)}",
        grid=of[0].grid if len({one.grid for one in of}) == 1 else None,
    )


def changed(one: RecordedMap, weights: AttentionMap, how: str) -> RecordedMap:
    """The same call with other weights, worked out from its own."""
    heads = one.heads if weights.shape[:-2] == one.shape[:-2] else None
    return replace(made(one.name, one.kind, weights, [one], how, one.call), step=one.step, rows=one.rows, heads=heads)
