"""Masks of sequences: distances, prefixes, padding and packed documents."""

from collections.abc import Sequence
from typing import Never

import torch
from torch import Tensor

from regard.attn import foreign_arguments
from regard.attn.terms.mask import Mask, Rows, check_batch_axes, nth_sample
from regard.attn.terms.tiles import PairMod, QueryKeyPairs, Span, TileCoverage, Tiles, align, offsets, tiles
from regard.common import checks

__all__ = ["Causal", "Documents", "Lengths", "Prefix", "Window"]


_NO_POSITION = 2**62


class Window(Mask):
    """−left ≤ j − i ≤ right: the neighbourhood of the query; None leaves a side open  (Beltagy et al. 2020)."""

    sparse = positional = True

    def __init__(self, left: int | None, right: int | None = 0, **refused: Never) -> None:
        if refused:
            foreign_arguments.refuse_arguments("Window", refused)
        for name, side in (("left", left), ("right", right)):
            if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
                raise TypeError(f"{name} must be a whole number, or None for an open side, got {side!r}; try {name}=8")
            if side is not None and side < 0:
                raise ValueError(f"{name} must be 0 or more, or None for an open side, got {side}; try {name}={-side}")
            if side is not None and side >= _NO_POSITION:
                raise ValueError(f"{name} must be below 2^62, as positions are, got {side}; try None for an open side")
        self.left, self.right = left, right

    @property
    def reach(self) -> int | None:
        return None if self.left is None or self.right is None else self.left + self.right + 1

    @property
    def first_query(self) -> int | None:
        return None if self.right is None else -self.right

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        ahead = offsets(i, j)
        if self.left is None:
            return ahead <= self.right if self.right is not None else torch.ones_like(ahead, dtype=torch.bool)
        if self.right is None:
            return ahead >= -self.left
        return (ahead <= self.right) & (ahead >= -self.left)

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        ahead = pairs.offset()
        least = None if self.left is None else pairs.number(-self.left)
        greatest = None if self.right is None else pairs.number(self.right)

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            offset = ahead(b, h, q, k)
            if least is None:
                return offset <= greatest if greatest is not None else offset == offset
            return offset >= least if greatest is None else (offset <= greatest) & (offset >= least)

        return allowed

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        nearest = offsets(i.high, j.low)  # the least j - i in the tile
        farthest = offsets(i.low, j.high)
        any_allowed = all_allowed = torch.ones_like(nearest, dtype=torch.bool)
        if self.left is not None:
            any_allowed, all_allowed = any_allowed & (farthest >= -self.left), all_allowed & (nearest >= -self.left)
        if self.right is not None:
            any_allowed, all_allowed = any_allowed & (nearest <= self.right), all_allowed & (farthest <= self.right)
        return TileCoverage(any_allowed, all_allowed)

    def hides_nothing(self, queries: int, keys: int) -> bool:
        reaches_first = self.left is None or self.left >= keys - 1
        return reaches_first and (self.right is None or self.right >= queries - 1)

    def span(self, i: Tensor) -> Span:
        return Span(None if self.left is None else i - self.left, None if self.right is None else i + self.right + 1)

    def __repr__(self) -> str:
        return f"Window({self.left}, {self.right})"


class Causal(Window):
    """j ≤ i: no query attends to later keys.  Positions are absolute, so one step at a time equals all at once."""

    def __init__(self) -> None:
        super().__init__(None, 0)

    def __repr__(self) -> str:
        return "Causal()"


class Prefix(Mask):
    """j < length, or j ≤ i: every query may attend to the prefix, causal after it  (Raffel et al. 2020, prefix LM).

    `length` is one number or a tensor of shape (*b).
    """

    sparse = True

    def __init__(self, length: int | Tensor) -> None:
        is_integer = isinstance(length, int) or (isinstance(length, Tensor) and not length.is_floating_point())
        if not is_integer:
            description = length.dtype if isinstance(length, Tensor) else type(length).__name__
            raise TypeError(
                f"length must be an integer or a tensor of them for Prefix, got {description}; try Prefix(8)"
            )
        self.length = length

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        if isinstance(self.length, Tensor):
            i, j, length = align(i.unsqueeze(-1), j.unsqueeze(-2), self.length[..., None, None])
            return (j <= i) | (j < length)
        i, j = align(i.unsqueeze(-1), j.unsqueeze(-2))
        return (j <= i) | (j < self.length)

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        i, j = pairs.query_position(), pairs.key_position()
        lengths = self.length if isinstance(self.length, Tensor) else pairs.number(self.length)
        length = pairs.of_samples(lengths[..., None, None])
        return lambda b, h, q, k: (j(b, h, q, k) <= i(b, h, q, k)) | (j(b, h, q, k) < length(b, h, q, k))

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        return TileCoverage(self.dense(i.high, j.low), self.dense(i.low, j.high))

    def sample(self, n: int) -> Mask:
        return Prefix(nth_sample(self.length, n, 0)) if isinstance(self.length, Tensor) else self

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        if isinstance(self.length, Tensor):
            check_batch_axes("length of Prefix", self.length, batch, device)
        return self

    def __repr__(self) -> str:
        return f"Prefix({checks.shape(self.length) if isinstance(self.length, Tensor) else self.length})"


class Lengths(Mask):
    """j < length: the keys behind a sample's length are padding.  `lengths` has one number per sample, (*b).

    A list is checked: a length beyond the keys raises. The numbers of a tensor are not read, so that no device waits
    for them; there such a length hides nothing.
    """

    sparse = True

    def __init__(self, lengths: Tensor | Sequence[int]) -> None:
        self.moves = isinstance(lengths, Sequence)  # to the device of the queries, where `_moved` is
        self._moved: Lengths | None = None
        self.longest = 0  # length of the longest list
        if isinstance(lengths, Sequence) and all(isinstance(n, int) and not isinstance(n, bool) for n in lengths):
            self.longest = max(lengths, default=0)
            lengths = torch.tensor(lengths, dtype=torch.long)
        if not isinstance(lengths, Tensor) or lengths.is_floating_point() or lengths.dtype == torch.bool:
            description = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
            raise TypeError(
                f"lengths must be integers, one per sample, got {description}; "
                "write Lengths([5, 3]), or BooleanMask(mask) for booleans"
            )
        self.lengths = lengths

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        j, lengths = align(j.unsqueeze(-2), self.lengths[..., None, None])
        return j < lengths

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        j, length = pairs.key_position(), pairs.of_samples(self.lengths[..., None, None])
        return lambda b, h, q, k: j(b, h, q, k) < length(b, h, q, k)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        return TileCoverage(self.dense(i.high, j.low), self.dense(i.low, j.high))

    def span(self, i: Tensor) -> Span | None:
        # known for one sample only: the mask does not know the axes of several
        return Span(None, self.lengths.reshape(1).expand(i.shape[-1])) if self.lengths.numel() == 1 else None

    def sample(self, n: int) -> Mask:
        return Lengths(nth_sample(self.lengths, n, 0))

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        fitted = self
        if self.moves and self.lengths.device != device:
            if self._moved is None or self._moved.lengths.device != device:
                self._moved = Lengths(self.lengths.to(device))
            fitted = self._moved
        check_batch_axes("lengths", fitted.lengths, batch, device)
        return fitted

    def check_keys(self, keys: int) -> None:
        if self.longest > keys:
            raise ValueError(
                f"lengths has {self.longest}, and there are {keys} keys; count the keys of each sample, or pass "
                "positions= if they begin later"
            )

    def __repr__(self) -> str:
        return f"Lengths({checks.shape(self.lengths)})"


class Documents(Mask):
    """document(i) = document(j): documents packed into one row do not attend to each other.

    `ids` holds the document of every key of the call, shape (*b, k); the queries are the last keys, unless `queries`
    holds their documents, shape (*b, q).
    """

    sparse = True

    def __init__(self, ids: Tensor, queries: Tensor | None = None) -> None:
        for name, t in (("ids", ids), ("queries", queries)):
            if t is not None and (not isinstance(t, Tensor) or t.is_floating_point()):
                description = t.dtype if isinstance(t, Tensor) else type(t).__name__
                raise TypeError(
                    f"{name} must be an integer tensor, the document of every position, got {description}; "
                    f"write {name}.long(), or torch.tensor([0, 0, 1]) of a list"
                )
        self.ids, self.queries = ids, queries

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        if self.queries is None and queries > keys:
            raise ValueError(
                f"ids must name the document of every query, but {queries} queries attend to {keys} keys; "
                "pass Documents(ids, queries=ids_of_the_queries)"
            )
        rows = self._rows(queries)
        check_batch_axes("ids of Documents", self.ids, batch, device, (keys,))
        check_batch_axes("queries of Documents", rows, batch, device, (queries,))
        return Documents(self.ids, rows)

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        rows, columns = align(self._rows(i.shape[-1]).unsqueeze(-1), self.ids.unsqueeze(-2))
        return rows == columns

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        row = pairs.of_samples(self._rows(pairs.size[0]).unsqueeze(-1))
        column = pairs.of_samples(self.ids.unsqueeze(-2))
        return lambda b, h, q, k: row(b, h, q, k) == column(b, h, q, k)

    def _rows(self, queries: int) -> Tensor:
        if self.queries is not None:
            return self.queries
        keys = self.ids.shape[-1]
        return self.ids if keys == queries else self.ids[..., keys - queries :]

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        rows, columns = tiles(self._rows(i.length), i.size), tiles(self.ids, j.size)
        first, last, low, high = align(
            rows.low.unsqueeze(-1), rows.high.unsqueeze(-1), columns.low.unsqueeze(-2), columns.high.unsqueeze(-2)
        )
        return TileCoverage((low <= last) & (high >= first), (low == last) & (high == first))

    def slice(self, rows: Rows, columns: Rows) -> Mask:
        assert self.queries is not None, "fit comes first"
        return Documents(self.ids[..., columns], self.queries[..., rows])

    def sample(self, n: int) -> Mask:
        return Documents(nth_sample(self.ids, n, 1), None if self.queries is None else nth_sample(self.queries, n, 1))

    def __repr__(self) -> str:
        return f"Documents({checks.shape(self.ids)})"
