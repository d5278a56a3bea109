"""Positions of queries and keys in tiles and spans, and tensors over pairs of them with the axes of heads."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.common import checks

Positions = tuple[Tensor, Tensor]  # positions of queries "*b q" and of keys "*b k"


class Tiles(NamedTuple):
    """Positions grouped into tiles: the least and the greatest position per tile, the tile size, the number of
    positions, and the positions themselves; the last one fills the last tile.
    """

    low: Tensor  # (*b, n)
    high: Tensor  # (*b, n)
    size: int
    length: int
    positions: Tensor  # (*b, n, size)


def tiles(positions: Tensor, size: int) -> Tiles:  # "*b p" -> n = ceil(p / size) tiles
    count = positions.shape[-1]
    missing = -count % size
    if missing:
        positions = torch.cat([positions, positions[..., -1:].expand(*positions.shape[:-1], missing)], dim=-1)
    positions = positions.unflatten(-1, (-1, size))
    low, high = positions.aminmax(dim=-1)
    return Tiles(low, high, size, count, positions)


class TileCoverage(NamedTuple):
    """Bounds for each tile of the (q, k) matrix: whether some pair is allowed, and whether every pair is."""

    any_allowed: Tensor  # (*b, nq, nk), False only if no pair of the tile is allowed
    all_allowed: Tensor  # (*b, nq, nk), True only if all pairs of the tile are allowed


class Span(NamedTuple):
    """The allowed keys of each query, first ≤ j < end; None leaves a side open."""

    first: Tensor | None  # (*b, q)
    end: Tensor | None  # (*b, q)

    def intersect(self, other: "Span") -> "Span":
        """The keys in both spans."""
        return Span(
            _join_optional(torch.maximum, self.first, other.first), _join_optional(torch.minimum, self.end, other.end)
        )


def _join_optional(join: Callable[[Tensor, Tensor], Tensor], a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else join(a, b)


def insert_head_axes(t: Tensor, ndim: int) -> Tensor:
    """`t` with axes of size one inserted between its leading axes and its last two, so that it has `ndim` axes."""
    missing = ndim - t.ndim
    return t if missing <= 0 or t.ndim == 2 else t.reshape(*t.shape[:-2], *[1] * missing, *t.shape[-2:])


def check_leading_axes(mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raises if a mask has some of the leading axes of the scores, which could be the first or the last ones."""
    if 2 < mask.ndim < len(scores) and any(size != 1 for size in mask.shape[:-2]):
        raise ValueError(
            f"mask of shape {checks.shape(mask)} has some of the leading axes of scores of shape "
            f"({', '.join(map(str, scores))}), and they could be the first or the last of them; write mask[:, None] if "
            "its first axis counts samples, or mask[None] if it counts heads"
        )


def align(*tensors: Tensor) -> list[Tensor]:  # "*b n m" each
    """The tensors with equally many axes, so that they broadcast although one may have more leading axes than another:
    those are the first axes of the batch.
    """
    ndim = max(t.ndim for t in tensors)
    return [insert_head_axes(t, ndim) for t in tensors]


def offsets(i: Tensor, j: Tensor) -> Tensor:  # "*b q", "*b k" -> "*b q k"
    """j − i for every pair."""
    row, column = align(j.unsqueeze(-2), i.unsqueeze(-1))
    return row - column
