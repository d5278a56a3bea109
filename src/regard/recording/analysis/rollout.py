"""Attention through all layers: what a query of the last layer has, by way of the layers between, of each input."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.recording.analysis.derived_maps import DerivedMap, IndexedMap, made, shared
from regard.recording.recorded_map import RecordedMap


class _OneHead(DerivedMap):
    """What several heads give together: (*b, h, q, k) becomes (*b, 1, q, k); a map without heads stays as it is."""

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, q, k = self.of[0].shape
        return (*batch[:-1], 1, q, k) if len(batch) > 1 else (*batch, q, k)

    def _each(self) -> int:
        return self.of[0]._each()

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index)

    def _own(self, rows: Tensor | slice) -> Tensor:  # -> "rows k"
        """The rows of the identity."""
        places = torch.arange(self.shape[-1], device=self.device)
        return (places[rows].unsqueeze(-1) == places).to(torch.float32)


class Residual(_OneHead):
    """A' = (1 − r) · mean_h W + r · I, rows renormalised  (Abnar and Zuidema 2020, section 3)."""

    def __init__(self, weights: AttentionMap, residual: float) -> None:
        super().__init__(weights)
        self.residual = residual

    def rows(self, rows: Tensor | slice) -> Tensor:
        mixed = _together(self.of[0].rows(rows))
        return shared((1 - self.residual) * mixed + self.residual * self._own(rows).to(mixed.dtype))


class GradientWeighted(_OneHead):
    """I + mean_h (∂L/∂P ∘ P)⁺  (Chefer, Gur and Wolf 2021, eq. 5 and 6)."""

    def __init__(self, weights: AttentionMap, gradient: AttentionMap) -> None:
        super().__init__(weights, gradient)

    def rows(self, rows: Tensor | slice) -> Tensor:
        weights, gradient = (one.rows(rows) for one in self.of)
        mixed = _together((weights * gradient).clamp_min(0.0))
        return mixed + self._own(rows).to(mixed.dtype)


class Product(DerivedMap):
    """A_n ⋯ A_2 A_1 of square maps, given from the last to the first: rows from the left, so no matrix is formed."""

    def rows(self, rows: Tensor | slice) -> Tensor:
        through = self.of[0].rows(rows)
        for one in self.of[1:]:
            after, start = torch.zeros_like(through), 0
            for piece in one._pieces(one._all()):
                end = start + piece.shape[-2]
                after += through[..., start:end] @ piece.to(through.dtype)
                start = end
            through = after
        return through


def _together(weights: Tensor) -> Tensor:
    return weights.mean(-3, keepdim=True) if weights.ndim > 3 else weights


def rollout(maps: Sequence[RecordedMap], residual: float) -> RecordedMap:
    checks.number("residual", residual, "rollout")
    if not 0.0 <= residual < 1.0:
        raise ValueError(f"residual must be at least 0 and below 1, got {residual}; the paper takes 0.5")
    _stack(maps, "rollout")
    factors = [Residual(one.weights, residual) for one in reversed(maps)]
    return made("rollout", "self", Product(*factors), maps, "rollout")


def relevance(maps: Sequence[RecordedMap]) -> RecordedMap:
    _stack(maps, "relevance")
    factors = []
    for one in reversed(maps):
        if one.gradient is None:
            raise ValueError(
                f"relevance needs the gradient of every map, and {one.name!r} has none; "
                "record with gradients=True and call backward on what is to be explained"
            )
        factors.append(GradientWeighted(one.weights, one.gradient))
    return made("relevance", "self", Product(*factors), maps, "relevance")


def _stack(maps: Sequence[RecordedMap], what: str) -> None:
    """The maps are the layers of one stack, once each."""
    if not maps:
        raise ValueError(f"{what} needs at least one map, got an empty recording; record a model that attends")
    for one in maps:
        if one.kind != "self" or one.shape[-1] != one.shape[-2] or one.rows is not None:
            raise ValueError(
                f"{what} follows self attention from layer to layer, and {one.name!r} is {one.kind} attention of "
                f"{one.shape[-2]} queries to {one.shape[-1]} keys; "
                "take one stack alone, as in select(layers='encoder*', kind='self'), and stitched() for generation"
            )
    shapes = dict.fromkeys((*one.shape[:-3], *one.shape[-2:]) for one in maps)
    if len(shapes) > 1:
        raise ValueError(
            f"{what} needs maps of one length, got {' and '.join(map(str, shapes))} (samples, queries, keys); "
            "take one stack and one pass alone, as in select(layers='encoder*', calls=0)"
        )
    names = [one.name for one in maps]
    # one module called again and again is a stack that shares its weights; several, called again, are several passes
    if len(set(names)) not in (1, len(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{what} needs one pass through the layers, and {twice!r} was called {names.count(twice)} times; "
            "take one, as in select(calls=0)"
        )
