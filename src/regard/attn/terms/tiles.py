"""Positions of queries and keys in tiles and spans, tensors over pairs of them with the axes of heads, and functions of
one pair.

Kernels call functions of one pair inside of their loops. Numbers are tensors of no axes there: a number of Python would
be compiled into the kernel, one kernel per number.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.common import checks

Positions = tuple[Tensor, Tensor]  # positions of queries "*b q" and of keys "*b k"
# of the indices of a pair, (sample, head, query, key): a number or a boolean
PairMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


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


def four_axes(t: Tensor, batch: tuple[int, ...]) -> Tensor:  # "*b n m" -> "b h n m", b and h may be 1
    """One axis of samples and one of heads: a single leading axis counts heads, of several the last one does."""
    axes = max(len(batch), 2) + 2
    t = t[(None,) * (axes - t.ndim)]
    if axes == 4:
        return t
    if all(size == 1 for size in t.shape[:-3]):
        return t.flatten(0, -4)
    return t.expand(*batch[:-1], *t.shape[-3:]).flatten(0, -4)


class QueryKeyPairs:
    """The pairs of queries and keys of a call, whose scores have the leading axes `batch`.

    With `are_last` the queries are the last of the keys: their positions are computed, not loaded. Numbers have the
    given dtype.
    """

    def __init__(
        self,
        batch: tuple[int, ...],
        size: tuple[int, int],
        positions: Callable[[], Positions],
        dtype: torch.dtype,
        device: torch.device,
        *,
        are_last: bool,
    ) -> None:
        self.batch, self.size, self.positions, self.are_last = batch, size, positions, are_last
        self.dtype, self.device = dtype, device

    def number(self, x: float) -> Tensor:
        """A number of a term as kernels take it."""
        dtype = torch.int32 if isinstance(x, int | torch.SymInt) else self.dtype
        return torch.full((), x, dtype=dtype, device=self.device)

    def of_samples(self, t: Tensor) -> PairMod:  # "*b q k", axes of size one serve all
        """The entry of a tensor whose leading axes are the first axes of the batch."""
        return self.of_heads(insert_head_axes(t, len(self.batch) + 2))

    def of_heads(self, t: Tensor) -> PairMod:  # "*b q k", axes of size one serve all
        """The entry of a tensor whose leading axes are the last axes of the batch."""
        return _entry(four_axes(t, self.batch))

    def query_position(self) -> PairMod:
        """The position of the query."""
        if not self.are_last:
            return self.of_samples(self.positions()[0].unsqueeze(-1))
        queries, keys = self.size
        first = self.number(keys - queries)
        return lambda b, h, q, k: q + first

    def key_position(self) -> PairMod:
        """The position of the key."""
        if not self.are_last:
            return self.of_samples(self.positions()[1].unsqueeze(-2))
        return lambda b, h, q, k: k

    def offset(self) -> PairMod:
        """j − i, the position of the key behind that of the query."""
        i, j = self.query_position(), self.key_position()
        return lambda b, h, q, k: j(b, h, q, k) - i(b, h, q, k)

    def by_offset(self, t: Tensor, zero: Tensor | None = None) -> PairMod:  # "*b q n", axes of size one serve all
        """The entry of a tensor of heads by j − i, where `zero` is the index of none; without it the middle is, and
        farther offsets have the first or the last entry.
        """
        is_bounded, first = zero is None, self.number(t.shape[-1] // 2) if zero is None else zero
        entry, offset = _entry(four_axes(t, self.batch)), self.offset()

        def of_pair(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            ahead = offset(b, h, q, k)
            if is_bounded:
                ahead = torch.minimum(torch.maximum(ahead, -first), first)
            return entry(b, h, q, ahead + first)

        return of_pair


def _entry(t: Tensor) -> PairMod:  # "b h q k", axes of size one serve all
    used = [axis for axis, size in enumerate(t.shape) if size != 1]
    t = t[tuple(slice(None) if axis in used else 0 for axis in range(4))]

    def entry(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        index = (b, h, q, k)
        return t[tuple([index[axis] for axis in used])] if used else t

    return entry
