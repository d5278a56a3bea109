"""Masks: who may look where?  Predicates on absolute positions, True = may look; joined by `&`, `|` and `~`.

A mask's leading axes are the first axes of the batch: lengths of shape (b,) serve scores of shape (b, q, k) and
(b, h, q, k) alike.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn import checks

Rows = Tensor | slice


class Tiles(NamedTuple):
    """A row of positions cut into tiles: the least and the greatest position of each, and where each starts."""

    low: Tensor  # (*b, n)
    high: Tensor  # (*b, n)
    size: int
    length: int


def tiles(positions: Tensor, size: int) -> Tiles:  # "*b p" -> n = ceil(p / size) tiles
    count = positions.shape[-1]
    missing = -count % size
    if missing:
        positions = torch.cat([positions, positions[..., -1:].expand(*positions.shape[:-1], missing)], dim=-1)
    low, high = positions.unflatten(-1, (-1, size)).aminmax(dim=-1)
    return Tiles(low, high, size, count)


class Verdict(NamedTuple):
    """What is known of each tile of the (q, k) square: may some pair look?  may every pair?"""

    some: Tensor  # (*b, nq, nk), False only where the tile is surely empty
    every: Tensor  # (*b, nq, nk), True only where the tile is surely full


class Span(NamedTuple):
    """first ≤ j < end of each query; None leaves a side open."""

    first: Tensor | None  # (*b, q)
    end: Tensor | None  # (*b, q)

    def both(self, other: "Span") -> "Span":
        """Where the two are one."""
        return Span(_either(torch.maximum, self.first, other.first), _either(torch.minimum, self.end, other.end))


def _either(join: Callable[[Tensor, Tensor], Tensor], a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else join(a, b)


def lead(t: Tensor, ndim: int) -> Tensor:
    """`t` with axes of size one between its leading axes and its last two, so that it has `ndim` axes."""
    missing = ndim - t.ndim
    return t if missing <= 0 or t.ndim == 2 else t.reshape(*t.shape[:-2], *[1] * missing, *t.shape[-2:])


def _fold(join: Callable[[Tensor, Tensor], Tensor], all_of: Sequence[Tensor]) -> Tensor:
    ndim = max(t.ndim for t in all_of)
    return functools.reduce(join, [lead(t, ndim) for t in all_of])


class Mask(ABC):
    """allowed(i, j) for positions i of the queries and j of the keys.  A mask of your own: subclass, write `dense`."""

    # may whole tiles of the square be empty, so that going by tiles pays?
    sparse: bool = False

    @abstractmethod
    def dense(self, i: Tensor, j: Tensor) -> Tensor:  # "*b q", "*b k" -> bool, broadcasts to "*b q k"
        """May the query at position i look at the key at position j?"""

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        """What is known of every tile without looking inside; nothing, unless a mask says more."""
        nothing = torch.zeros(1, 1, dtype=torch.bool, device=i.low.device)
        return Verdict(~nothing, nothing)

    def span(self, i: Tensor) -> Span | None:  # "*b q"
        """The positions that the queries at i may look at, if those of each are one interval; None if that is unknown,
        and a mask need not say."""
        return None

    def part(self, rows: Rows, columns: Rows) -> "Mask":
        """The same mask for some of this call's queries and keys, by their index in the call."""
        return self

    def sample(self, n: int) -> "Mask":
        """The same mask for sample n of the first batch axis, which stays as an axis of size one."""
        return _Sample(self, n)

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> "Mask":
        """The mask for scores of shape (*batch, queries, keys); raises if it does not fit them."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return And(self, as_mask(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Or(self, as_mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)


def as_mask(mask: "Mask | Tensor") -> Mask:
    """A mask, or a boolean tensor as one."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return BooleanMask(mask)
    got = f"the class {mask.__name__}" if isinstance(mask, type) else type(mask).__name__
    raise TypeError(
        f"mask must be a Mask or a boolean tensor (True = may look), got {got}; "
        "try Causal(), Lengths(lengths) or BooleanMask(tensor)"
    )


class _Sample(Mask):
    """One sample of a mask that does not know its samples apart."""

    def __init__(self, mask: Mask, n: int) -> None:
        self.mask, self.n = mask, n

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return _nth(self.mask.dense(i, j), self.n, 2)

    def part(self, rows: Rows, columns: Rows) -> Mask:
        return _Sample(self.mask.part(rows, columns), self.n)


class Joined(Mask):
    """Masks made of masks: what is asked of the whole is asked of each."""

    def __init__(self, *masks: Mask) -> None:
        self.masks = masks
        self.sparse = any(m.sparse for m in masks)

    def part(self, rows: Rows, columns: Rows) -> Mask:
        return type(self)(*[m.part(rows, columns) for m in self.masks])

    def sample(self, n: int) -> Mask:
        return type(self)(*[m.sample(n) for m in self.masks])

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        return type(self)(*[m.fit(batch, queries, keys, device) for m in self.masks])


class And(Joined):
    """a & b: where both allow it."""

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return _fold(torch.logical_and, [m.dense(i, j) for m in self.masks])

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        some, every = zip(*[m.tiled(i, j) for m in self.masks], strict=True)
        return Verdict(_fold(torch.logical_and, some), _fold(torch.logical_and, every))

    def span(self, i: Tensor) -> Span | None:
        found = [m.span(i) for m in self.masks]
        known = [one for one in found if one is not None]
        return functools.reduce(Span.both, known) if len(known) == len(found) else None

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.masks))


class Or(Joined):
    """a | b: where either allows it."""

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return _fold(torch.logical_or, [m.dense(i, j) for m in self.masks])

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        some, every = zip(*[m.tiled(i, j) for m in self.masks], strict=True)
        return Verdict(_fold(torch.logical_or, some), _fold(torch.logical_or, every))

    def __repr__(self) -> str:
        return "(" + " | ".join(map(repr, self.masks)) + ")"


class Not(Joined):
    """~a: where a does not allow it."""

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return ~self.masks[0].dense(i, j)

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        some, every = self.masks[0].tiled(i, j)
        return Verdict(~every, ~some)

    def span(self, i: Tensor) -> Span | None:
        """Of what is open on one side, the other."""
        found = self.masks[0].span(i)
        if found is None or (found.first is None) == (found.end is None):
            return None
        return Span(found.end, found.first)

    def __repr__(self) -> str:
        return f"~{self.masks[0]!r}"


class Window(Mask):
    """−left ≤ j − i ≤ right: the neighbourhood of the query; None leaves a side open  (Beltagy et al. 2020)."""

    sparse = True

    def __init__(self, left: int | None, right: int | None = 0) -> None:
        for name, side in (("left", left), ("right", right)):
            if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
                raise TypeError(f"{name} must be a whole number, or None for an open side, got {side!r}; try {name}=8")
            if side is not None and side < 0:
                raise ValueError(f"{name} must be 0 or more, or None for an open side, got {side}; try {name}={-side}")
        self.left, self.right = left, right

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        ahead = j.unsqueeze(-2) - i.unsqueeze(-1)
        if self.left is None:
            return ahead <= self.right if self.right is not None else torch.ones_like(ahead, dtype=torch.bool)
        if self.right is None:
            return ahead >= -self.left
        return (ahead <= self.right) & (ahead >= -self.left)

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        nearest = j.low.unsqueeze(-2) - i.high.unsqueeze(-1)  # the least j - i in the tile
        farthest = j.high.unsqueeze(-2) - i.low.unsqueeze(-1)
        some = every = torch.ones_like(nearest, dtype=torch.bool)
        if self.left is not None:
            some, every = some & (farthest >= -self.left), every & (nearest >= -self.left)
        if self.right is not None:
            some, every = some & (nearest <= self.right), every & (farthest <= self.right)
        return Verdict(some, every)

    def span(self, i: Tensor) -> Span:
        return Span(None if self.left is None else i - self.left, None if self.right is None else i + self.right + 1)

    def sample(self, n: int) -> Mask:
        return self

    def __repr__(self) -> str:
        return f"Window({self.left}, {self.right})"


class Causal(Window):
    """j ≤ i: no query looks ahead.  Positions are absolute, so one step at a time equals all at once."""

    def __init__(self) -> None:
        super().__init__(None, 0)

    def __repr__(self) -> str:
        return "Causal()"


class Prefix(Mask):
    """j < length, or j ≤ i: all may look at the prefix, causal after it  (Raffel et al. 2020, prefix LM).

    `length` is one number or a tensor of shape (*b).
    """

    sparse = True

    def __init__(self, length: int | Tensor) -> None:
        whole = isinstance(length, int) or (isinstance(length, Tensor) and not length.is_floating_point())
        if not whole:
            got = length.dtype if isinstance(length, Tensor) else type(length).__name__
            raise TypeError(f"length must be an integer or a tensor of them for Prefix, got {got}; try Prefix(8)")
        self.length = length

    def _length(self) -> int | Tensor:
        return self.length[..., None, None] if isinstance(self.length, Tensor) else self.length

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        i, j = i.unsqueeze(-1), j.unsqueeze(-2)
        return (j <= i) | (j < self._length())

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        low, high = j.low.unsqueeze(-2), j.high.unsqueeze(-2)
        some = (low <= i.high.unsqueeze(-1)) | (low < self._length())
        return Verdict(some, (high <= i.low.unsqueeze(-1)) | (high < self._length()))

    def sample(self, n: int) -> Mask:
        return Prefix(_nth(self.length, n, 0)) if isinstance(self.length, Tensor) else self

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        if isinstance(self.length, Tensor):
            _fits("length of Prefix", self.length, batch, device)
        return self

    def __repr__(self) -> str:
        return f"Prefix({checks.shape(self.length) if isinstance(self.length, Tensor) else self.length})"


class Lengths(Mask):
    """j < length: the keys behind a sample's length are padding.  `lengths` has shape (*b), one number a sample."""

    sparse = True

    def __init__(self, lengths: Tensor) -> None:
        if not isinstance(lengths, Tensor) or lengths.is_floating_point() or lengths.dtype == torch.bool:
            got = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
            raise TypeError(
                f"lengths must be an integer tensor, one a sample, got {got}; "
                "write torch.tensor([5, 3]), or BooleanMask(mask) for booleans"
            )
        self.lengths = lengths

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return j.unsqueeze(-2) < self.lengths[..., None, None]

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        lengths = self.lengths[..., None, None]
        return Verdict(j.low.unsqueeze(-2) < lengths, j.high.unsqueeze(-2) < lengths)

    def span(self, i: Tensor) -> Span | None:
        # of one sample: which axes several lie on is asked of the call
        return Span(None, self.lengths.reshape(1).expand(i.shape[-1])) if self.lengths.numel() == 1 else None

    def sample(self, n: int) -> Mask:
        return Lengths(_nth(self.lengths, n, 0))

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        _fits("lengths", self.lengths, batch, device)
        return self

    def __repr__(self) -> str:
        return f"Lengths({checks.shape(self.lengths)})"


class Documents(Mask):
    """document(i) = document(j): several documents packed into one row do not see each other.

    `ids` names the document of every key of the call, shape (*b, k); the queries are the last of them, unless
    `queries` names theirs, shape (*b, q).
    """

    sparse = True

    def __init__(self, ids: Tensor, queries: Tensor | None = None) -> None:
        for name, t in (("ids", ids), ("queries", queries)):
            if t is not None and (not isinstance(t, Tensor) or t.is_floating_point()):
                got = t.dtype if isinstance(t, Tensor) else type(t).__name__
                raise TypeError(
                    f"{name} must be an integer tensor, the document of every position, got {got}; "
                    f"write {name}.long(), or torch.tensor([0, 0, 1]) of a list"
                )
        self.ids, self.queries = ids, queries

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        if self.queries is None and queries > keys:
            raise ValueError(
                f"ids must name the document of every query, but {queries} queries look at {keys} keys; "
                "pass Documents(ids, queries=ids_of_the_queries)"
            )
        rows = self._rows(queries)
        _fits("ids of Documents", self.ids, batch, device, (keys,))
        _fits("queries of Documents", rows, batch, device, (queries,))
        return Documents(self.ids, rows)

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return self._rows(i.shape[-1]).unsqueeze(-1) == self.ids.unsqueeze(-2)

    def _rows(self, queries: int) -> Tensor:
        return self.ids[..., self.ids.shape[-1] - queries :] if self.queries is None else self.queries

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        rows, columns = tiles(self._rows(i.length), i.size), tiles(self.ids, j.size)
        first, last = rows.low.unsqueeze(-1), rows.high.unsqueeze(-1)
        low, high = columns.low.unsqueeze(-2), columns.high.unsqueeze(-2)
        return Verdict((low <= last) & (high >= first), (low == last) & (high == first))

    def part(self, rows: Rows, columns: Rows) -> Mask:
        assert self.queries is not None, "fit comes first"
        return Documents(self.ids[..., columns], self.queries[..., rows])

    def sample(self, n: int) -> Mask:
        return Documents(_nth(self.ids, n, 1), None if self.queries is None else _nth(self.queries, n, 1))

    def __repr__(self) -> str:
        return f"Documents({checks.shape(self.ids)})"


class BooleanMask(Mask):
    """allowed[i, j] as a boolean tensor "*b q k" (True = may look), by the index of this call's queries and keys.

    Axes of size one serve all; a tensor of the keys alone is written `BooleanMask(allowed.unsqueeze(-2))`.
    """

    def __init__(self, allowed: Tensor) -> None:
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            got = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
            raise TypeError(
                f"mask must be boolean (True = may look), got {got}; "
                "pass numbers to be added to the scores as bias=, or compare them first, as in mask > 0"
            )
        if allowed.ndim < 2:
            raise ValueError(
                f"mask must end in the axes (queries, keys), got {checks.shape(allowed)}; try mask.unsqueeze(-2)"
            )
        self.allowed = allowed

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return self.allowed

    def tiled(self, i: Tiles, j: Tiles) -> Verdict:
        allowed = self.allowed.expand(*self.allowed.shape[:-2], i.length, j.length)
        rows = (
            [piece.any(-2) for piece in allowed.split(i.size, -2)],
            [piece.all(-2) for piece in allowed.split(i.size, -2)],
        )
        some, every = torch.stack(rows[0], -2), torch.stack(rows[1], -2)
        columns = some.split(j.size, -1), every.split(j.size, -1)
        return Verdict(
            torch.stack([c.any(-1) for c in columns[0]], -1), torch.stack([c.all(-1) for c in columns[1]], -1)
        )

    def part(self, rows: Rows, columns: Rows) -> Mask:
        allowed = self.allowed if self.allowed.shape[-2] == 1 else self.allowed[..., rows, :]
        return BooleanMask(allowed if allowed.shape[-1] == 1 else allowed[..., columns])

    def sample(self, n: int) -> Mask:
        return BooleanMask(_nth(self.allowed, n, 2))

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        want = (*batch[: self.allowed.ndim - 2], queries, keys)
        fits = self.allowed.ndim - 2 <= len(batch) and all(
            n in (1, m) for n, m in zip(self.allowed.shape, want, strict=True)
        )
        if not fits:
            whole = ", ".join(map(str, (*batch, queries, keys)))
            raise ValueError(
                f"mask of shape {checks.shape(self.allowed)} does not fit scores of shape ({whole}); "
                "its last two axes are queries and keys, those before are the first axes of the batch, and 1 fits all"
            )
        checks.same_device("mask", self.allowed, device)
        return self

    def __repr__(self) -> str:
        return f"BooleanMask({checks.shape(self.allowed)})"


def _nth(t: Tensor, n: int, own: int) -> Tensor:
    """Sample n of a tensor that has `own` axes behind the batch's; one without batch axes serves every sample."""
    return t[n : n + 1] if t.ndim > own and t.shape[0] > 1 else t


def _fits(name: str, t: Tensor, batch: tuple[int, ...], device: torch.device, own: tuple[int, ...] = ()) -> None:
    """The axes of `t` are the first of the batch's, then its `own`."""
    want = (*batch[: t.ndim - len(own)], *own)
    if len(want) != t.ndim or any(n not in (1, m) for n, m in zip(t.shape, want, strict=True)):
        raise ValueError(
            f"{name}, of shape {checks.shape(t)}, must have the batch's first axes{' and positions' if own else ''}, "
            f"here ({', '.join(map(str, (*batch[:1], *own)))}); reshape it or index it to this batch"
        )
    checks.same_device(name, t, device)
