"""Masks: predicates on absolute positions that say which keys a query may attend to; combined by `&`, `|` and `~`.

True means that the query may attend to the key. Lengths, prefixes and documents have the first axes of the batch:
lengths of shape (b,) serve scores of shape (b, q, k) and (b, h, q, k) alike. A boolean tensor has all axes of the
scores, or the last two.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.attn.terms.tiles import (
    PairMod,
    Positions,
    QueryKeyPairs,
    Span,
    TileCoverage,
    Tiles,
    align,
    check_leading_axes,
)
from regard.common import checks

__all__ = ["BooleanMask", "Mask"]

Rows = Tensor | slice


class Mask(ABC):
    """allowed(i, j) for query positions i and key positions j.  To define a mask, subclass and implement `dense`."""

    # whether whole tiles may be masked, so that computing by tiles pays off
    sparse: bool = False
    # whether positions alone decide, so that the mask serves every sample
    positional: bool = False
    # whether the mask depends on queries and keys, so that a call resolves it
    reads_keys: bool = False

    @property
    def reach(self) -> int | None:
        """The most consecutive positions that a query may attend to; None if the kind of the mask bounds none."""
        return None

    @property
    def first_query(self) -> int | None:
        """The least position of a query that may attend to keys from position 0 on; None if the kind of the mask
        bounds none.
        """
        return None

    @abstractmethod
    def dense(self, i: Tensor, j: Tensor) -> Tensor:  # "*b q", "*b k" -> bool, broadcasts to "*b q k"
        """Whether the query at position i may attend to the key at position j."""

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        """Bounds for every tile, computed from its positions; by default nothing is known."""
        nothing = torch.zeros(1, 1, dtype=torch.bool, device=i.low.device)
        return TileCoverage(~nothing, nothing)

    @property
    def tiling(self) -> str | None:
        """The tiles that `tile_order` makes, for `explain`; None: tokens are in a good order as they are. Optional."""
        return None

    def tile_order(self, positions: Tensor) -> Tensor:  # "n" -> "n"
        """Numbers by which a backend sorts tokens, so that tokens with common keys share tiles. For masks with a
        `tiling`.
        """
        return positions

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        """`dense` as a function of one pair, for kernels that evaluate it inside of their loops; by default an entry of
        the whole tensor.
        """
        return pairs.of_samples(self.dense(*pairs.positions()))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "dense" in vars(cls) and "mask_mod" not in vars(cls):
            cls.mask_mod = Mask.mask_mod  # type: ignore[method-assign]  # that of a base class is for its own `dense`

    def span(self, i: Tensor) -> Span | None:  # "*b q"
        """The allowed keys of the queries at i, if they form one interval per query; None if unknown. Optional."""
        return None

    def hides_nothing(self, queries: int, keys: int) -> bool:
        """Whether queries that are the last of the keys surely may attend to all of them. Reads no values. Optional."""
        return False

    def slice(self, rows: Rows, columns: Rows) -> "Mask":
        """The same mask for some queries and keys of this call, given by index."""
        return self

    def sample(self, n: int) -> "Mask":
        """The same mask for sample n of the first batch axis, which stays as an axis of size one."""
        return self if self.positional else _MaskOfSample(self, n)

    def resolve(self, q: Tensor, k: Tensor, positions: Positions, others: "Mask | None") -> "Mask":
        """The mask for these queries and keys, of those that read them; `others` are combined with it by `&`."""
        return self

    def over_heads(self, axes: int) -> "Mask":
        """The same mask for `axes` axes of all heads: a tensor without an axis of heads gets one."""
        return self

    def check_keys(self, keys: int) -> None:  # noqa: B027  most masks name no keys
        """Raises if the mask names keys beyond these, which begin at position 0."""

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


def conjuncts(mask: Mask | None) -> list[Mask]:
    """The masks that are combined by `&`."""
    if type(mask) is And:
        return [part for each in mask.masks for part in conjuncts(each)]
    return [] if mask is None else [mask]


def as_mask(mask: "Mask | Tensor") -> Mask:
    """Returns a mask unchanged and wraps a boolean tensor."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return BooleanMask(mask)
    description = f"the class {mask.__name__}" if isinstance(mask, type) else type(mask).__name__
    raise TypeError(
        f"mask must be a Mask or a boolean tensor (True = may attend), got {description}; "
        "try Causal(), Lengths(lengths) or BooleanMask(tensor)"
    )


class PairRule(Mask):
    """A mask that computes each pair from its two positions alone.  Subclasses implement `allows`."""

    positional = True

    @abstractmethod
    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        """Whether queries at i may attend to keys at j, element by element."""

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return self.allows(*align(i.unsqueeze(-1), j.unsqueeze(-2)))

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        i, j = pairs.query_position(), pairs.key_position()
        return lambda b, h, q, k: self.allows(i(b, h, q, k), j(b, h, q, k))


class _MaskOfSample(Mask):
    """One sample of a mask that has no own `sample`."""

    def __init__(self, mask: Mask, n: int) -> None:
        self.mask, self.n = mask, n

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return nth_sample(self.mask.dense(i, j), self.n, 2)

    def slice(self, rows: Rows, columns: Rows) -> Mask:
        return _MaskOfSample(self.mask.slice(rows, columns), self.n)


class CombinedMask(Mask):
    """A mask composed of other masks."""

    def __init__(self, *masks: Mask) -> None:
        self.masks = masks
        self.sparse = any(m.sparse for m in masks)
        self.positional = all(m.positional for m in masks)
        self.reads_keys = any(m.reads_keys for m in masks)

    @property
    def tiling(self) -> str | None:
        return self._tiled.tiling

    def tile_order(self, positions: Tensor) -> Tensor:
        return self._tiled.tile_order(positions)

    @property
    def _tiled(self) -> Mask:
        """The first mask with a tiling, or the first."""
        return next((m for m in self.masks if m.tiling is not None), self.masks[0])

    def slice(self, rows: Rows, columns: Rows) -> Mask:
        return type(self)(*[m.slice(rows, columns) for m in self.masks])

    def resolve(self, q: Tensor, k: Tensor, positions: Positions, others: Mask | None) -> Mask:
        return type(self)(*[m.resolve(q, k, positions, others) for m in self.masks])

    def sample(self, n: int) -> Mask:
        return type(self)(*[m.sample(n) for m in self.masks])

    def over_heads(self, axes: int) -> Mask:
        return type(self)(*[m.over_heads(axes) for m in self.masks])

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        return type(self)(*[m.fit(batch, queries, keys, device) for m in self.masks])

    def check_keys(self, keys: int) -> None:
        for mask in self.masks:
            mask.check_keys(keys)


class JoinedMask(CombinedMask):
    """Several masks, joined by an operation on booleans."""

    join: Callable[[Tensor, Tensor], Tensor]

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return self._fold([m.dense(i, j) for m in self.masks])

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        any_allowed, all_allowed = zip(*[m.tile_coverage(i, j) for m in self.masks], strict=True)
        return TileCoverage(self._fold(any_allowed), self._fold(all_allowed))

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        mods = [m.mask_mod(pairs) for m in self.masks]
        join = self.join
        return lambda b, h, q, k: functools.reduce(join, [mod(b, h, q, k) for mod in mods])

    def _fold(self, tensors: Sequence[Tensor]) -> Tensor:
        return functools.reduce(self.join, align(*tensors))


class And(JoinedMask):
    """a & b: where both allow it."""

    join = staticmethod(torch.logical_and)

    def resolve(self, q: Tensor, k: Tensor, positions: Positions, others: Mask | None) -> Mask:
        rules = [*(m for m in self.masks if not m.reads_keys), *([] if others is None else [others])]
        known = And(*rules) if rules else None
        return And(*[m.resolve(q, k, positions, known) for m in self.masks])

    @property
    def reach(self) -> int | None:
        return min((m.reach for m in self.masks if m.reach is not None), default=None)

    @property
    def first_query(self) -> int | None:
        return max((m.first_query for m in self.masks if m.first_query is not None), default=None)

    def hides_nothing(self, queries: int, keys: int) -> bool:
        return all(m.hides_nothing(queries, keys) for m in self.masks)

    def span(self, i: Tensor) -> Span | None:
        spans = [m.span(i) for m in self.masks]
        bounded = [span for span in spans if span is not None]
        return functools.reduce(Span.intersect, bounded) if len(bounded) == len(spans) else None

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.masks))


class Or(JoinedMask):
    """a | b: where either allows it."""

    join = staticmethod(torch.logical_or)

    @property
    def first_query(self) -> int | None:
        bounds = [m.first_query for m in self.masks]
        return min((n for n in bounds if n is not None), default=None) if None not in bounds else None

    def __repr__(self) -> str:
        return "(" + " | ".join(map(repr, self.masks)) + ")"


class Not(CombinedMask):
    """~a: where a does not allow it."""

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return ~self.masks[0].dense(i, j)

    def mask_mod(self, pairs: QueryKeyPairs) -> PairMod:
        allowed = self.masks[0].mask_mod(pairs)
        return lambda b, h, q, k: ~allowed(b, h, q, k)

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        any_allowed, all_allowed = self.masks[0].tile_coverage(i, j)
        return TileCoverage(~all_allowed, ~any_allowed)

    def span(self, i: Tensor) -> Span | None:
        """The complement of a span that is open on one side."""
        span = self.masks[0].span(i)
        if span is None or (span.first is None) == (span.end is None):
            return None
        return Span(span.end, span.first)

    def __repr__(self) -> str:
        return f"~{self.masks[0]!r}"


class BooleanMask(Mask):
    """allowed[i, j] as a boolean tensor "q k" or "*b q k" (True = may attend), indexed by the queries and keys of this
    call.

    Axes of size one serve all; padding, (b, k), is written `BooleanMask(allowed[:, None, None])` for scores of heads.
    """

    def __init__(self, allowed: Tensor) -> None:
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            description = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
            raise TypeError(
                f"mask must be boolean (True = may attend), got {description}; "
                "pass numbers to be added to the scores as bias=, or ones and zeros as mask > 0"
            )
        if allowed.ndim < 2:
            raise ValueError(
                f"mask must end in the axes (queries, keys), got {checks.shape(allowed)}; try mask.unsqueeze(-2)"
            )
        self.allowed = allowed

    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return self.allowed

    def tile_coverage(self, i: Tiles, j: Tiles) -> TileCoverage:
        allowed = self.allowed.expand(*self.allowed.shape[:-2], i.length, j.length)
        any_allowed = any_in_tiles(any_in_tiles(allowed, -2, i.size), -1, j.size)
        return TileCoverage(any_allowed, ~any_in_tiles(any_in_tiles(~allowed, -2, i.size), -1, j.size))

    def slice(self, rows: Rows, columns: Rows) -> Mask:
        allowed = self.allowed if self.allowed.shape[-2] == 1 else self.allowed[..., rows, :]
        return BooleanMask(allowed if allowed.shape[-1] == 1 else allowed[..., columns])

    def sample(self, n: int) -> Mask:
        return BooleanMask(nth_sample(self.allowed, n, 2))

    def over_heads(self, axes: int) -> Mask:
        is_without = 2 < self.allowed.ndim == axes - 1
        return BooleanMask(self.allowed.unsqueeze(-3)) if is_without else self

    def fit(self, batch: tuple[int, ...], queries: int, keys: int, device: torch.device) -> Mask:
        check_leading_axes(self.allowed, (*batch, queries, keys))
        expected = (*batch[: self.allowed.ndim - 2], queries, keys)
        fits = self.allowed.ndim - 2 <= len(batch) and all(
            n in (1, m) for n, m in zip(self.allowed.shape, expected, strict=True)
        )
        if not fits:
            shape = ", ".join(map(str, (*batch, queries, keys)))
            raise ValueError(
                f"mask of shape {checks.shape(self.allowed)} does not fit scores of shape ({shape}); "
                "its last two axes are queries and keys, those before are the axes of the batch, and 1 fits all"
            )
        checks.same_device("mask", self.allowed, device)
        return self

    def __repr__(self) -> str:
        return f"BooleanMask({checks.shape(self.allowed)})"


def any_in_tiles(t: Tensor, axis: int, size: int) -> Tensor:
    """Whether a tile of `size` entries along the axis has a True; the last tile may be smaller."""
    if size == 1:
        return t
    if size >= t.shape[axis]:
        return t.any(axis, keepdim=True)
    missing = -t.shape[axis] % size
    t = torch.nn.functional.pad(t, (0, 0) * (-1 - axis) + (0, missing)) if missing else t
    return t.unflatten(axis, (-1, size)).any(axis)


def nth_sample(t: Tensor, n: int, own_axes: int) -> Tensor:
    """Sample n of a tensor with `own_axes` axes behind the batch axes; without batch axes it serves every sample."""
    return t[n : n + 1] if t.ndim > own_axes and t.shape[0] > 1 else t


def check_batch_axes(
    name: str, t: Tensor, batch: tuple[int, ...], device: torch.device, own_shape: tuple[int, ...] = ()
) -> None:
    """Raises unless the axes of `t` are the first axes of the batch, followed by `own_shape`."""
    expected = (*batch[: t.ndim - len(own_shape)], *own_shape)
    if len(expected) != t.ndim or any(n not in (1, m) for n, m in zip(t.shape, expected, strict=True)):
        raise ValueError(
            f"{name}, of shape {checks.shape(t)}, must have the batch's first axes"
            f"{' and positions' if own_shape else ''}, "
            f"here ({', '.join(map(str, (*batch[:1], *own_shape)))}); reshape it or index it to this batch"
        )
    checks.same_device(name, t, device)
