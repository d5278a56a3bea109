"""Attention rollout and gradient relevance: the share of each input in every query of the last layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import checks
from regard.recording.analysis.derived_maps import DerivedMap, IndexedMap, derive, normalize_rows
from regard.recording.recorded_map import RecordedMap


class _OneHead(DerivedMap):
    """Several heads combined: (*b, h, q, k) becomes (*b, 1, q, k); a map without heads stays as it is."""

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, q, k = self.sources[0].shape
        return (*batch[:-1], 1, q, k) if len(batch) > 1 else (*batch, q, k)

    def _weights_per_row(self) -> int:
        return self.sources[0]._weights_per_row()

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index)

    def _identity(self, rows: Tensor | slice) -> Tensor:  # -> "rows k"
        """The rows of the identity."""
        positions = torch.arange(self.shape[-1], device=self.device)
        return (positions[rows].unsqueeze(-1) == positions).to(torch.float32)


class Residual(_OneHead):
    """A' = (1 − r) · mean_h W + r · I, rows renormalised  (Abnar and Zuidema 2020, section 3)."""

    def __init__(self, weights: AttentionMap, residual: float) -> None:
        super().__init__(weights)
        self.residual = residual

    def rows(self, rows: Tensor | slice) -> Tensor:
        mixed = _head_mean(self.sources[0].rows(rows))
        return normalize_rows((1 - self.residual) * mixed + self.residual * self._identity(rows).to(mixed.dtype))


class GradientWeighted(_OneHead):
    """I + mean_h (∂L/∂P ∘ P)⁺  (Chefer, Gur and Wolf 2021, eq. 5 and 6)."""

    def __init__(self, weights: AttentionMap, gradient: AttentionMap) -> None:
        super().__init__(weights, gradient)

    def rows(self, rows: Tensor | slice) -> Tensor:
        weights, gradient = (part.rows(rows) for part in self.sources)
        mixed = _head_mean((weights * gradient).clamp_min(0.0))
        return mixed + self._identity(rows).to(mixed.dtype)


class Product(DerivedMap):
    """A_n ⋯ A_2 A_1 of square maps, given from the last to the first: rows from the left, so no matrix is formed."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        product_rows = self.sources[0].rows(rows)
        for factor in self.sources[1:]:
            product, start = torch.zeros_like(product_rows), 0
            for block in factor._chunks(factor._all_rows()):
                end = start + block.shape[-2]
                product += product_rows[..., start:end] @ block.to(product_rows.dtype)
                start = end
            product_rows = product
        return product_rows


def _head_mean(weights: Tensor) -> Tensor:
    return weights.mean(-3, keepdim=True) if weights.ndim > 3 else weights


def rollout(maps: Sequence[RecordedMap], residual: float) -> RecordedMap:
    checks.number("residual", residual, "rollout")
    if not 0.0 <= residual < 1.0:
        raise ValueError(f"residual must be at least 0 and below 1, got {residual}; the paper takes 0.5")
    _check_stack(maps, "rollout")
    factors = [Residual(m.weights, residual) for m in reversed(maps)]
    return derive("rollout", "self", Product(*factors), maps, "rollout")


def relevance(maps: Sequence[RecordedMap]) -> RecordedMap:
    _check_stack(maps, "relevance")
    factors = []
    for recorded_map in reversed(maps):
        if recorded_map.gradient is None:
            raise ValueError(
                f"relevance needs the gradient of every map, and {recorded_map.name!r} has none; "
                "record with gradients=True and call backward on the value to explain"
            )
        factors.append(GradientWeighted(recorded_map.weights, recorded_map.gradient))
    return derive("relevance", "self", Product(*factors), maps, "relevance")


def _check_stack(maps: Sequence[RecordedMap], method: str) -> None:
    """Raises unless the maps are the layers of one stack, once each."""
    if not maps:
        raise ValueError(f"{method} needs at least one map, got an empty recording; record a model that attends")
    for recorded_map in maps:
        if (
            recorded_map.kind != "self"
            or recorded_map.shape[-1] != recorded_map.shape[-2]
            or recorded_map.rows is not None
        ):
            raise ValueError(
                f"{method} follows self attention from layer to layer, and {recorded_map.name!r} is "
                f"{recorded_map.kind} attention of {recorded_map.shape[-2]} queries to {recorded_map.shape[-1]} keys; "
                "take one stack alone, as in select(layers='encoder*', kind='self'), and stitch() for generation"
            )
    for recorded_map in maps:
        if len(recorded_map.shape) > 4:
            raise ValueError(
                f"{method} takes a mean over heads, and the map of {recorded_map.name!r} "
                f"has {len(recorded_map.shape)} axes, {recorded_map.shape}, such as heads and windows of an "
                "image; select other layers"
            )
    shapes = dict.fromkeys((*m.shape[:-3], *m.shape[-2:]) for m in maps)
    if len(shapes) > 1:
        raise ValueError(
            f"{method} needs maps of one length, got {' and '.join(map(str, shapes))} (samples, queries, keys); "
            "take one stack and one pass alone, as in select(layers='encoder*', calls=0)"
        )
    names = [m.name for m in maps]
    # one module called again and again is a stack that shares its weights; several, called again, are several passes
    if len(set(names)) not in (1, len(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{method} needs one pass through the layers, and {twice!r} was called {names.count(twice)} times; "
            "take one, as in select(calls=0)"
        )
