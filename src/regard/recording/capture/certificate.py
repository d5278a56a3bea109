"""The certificate of a map: |P·V − out| over some of its rows, and how much of it rounding explains."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.call import exactly
from regard.attn.maps.attention_map import AttentionMap

# how many rows are checked, the first and the last among them
ROWS = 32
# how many weights are compared at a time
_AT_ONCE = 1 << 22
# ε: of all that is summed, what a kernel's rounding may leave; in half types, whose sums are made in float32, twice
# that of one number
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}


@lru_cache(maxsize=64)
def checked(queries: int) -> Tensor | slice:
    """The rows that are looked at: all, or some that lie evenly."""
    if queries <= ROWS:
        return slice(None)
    return torch.tensor([round(n * (queries - 1) / (ROWS - 1)) for n in range(ROWS)])


class Certificate(NamedTuple):
    """|P·V − out| where it is worst by what rounding may leave there, and how much that is."""

    certificate: float
    tolerance: float


def certificate(
    of: AttentionMap, v: Tensor, out: Tensor, hard: bool = False, given: float | None = None
) -> Certificate:  # "*b k v", "*b q v"
    """|P·V − out| against ε (Σ_j P_ij |v_j| + |out_i|), or against a tolerance that is `given`.

    Of a hard read, which takes one value: how far that is from the nearest it may have taken.
    """
    if 0 in of.shape or out.numel() == 0:
        return Certificate(0.0, given or 0.0)
    rows = checked(of.shape[-2])
    rows = rows if isinstance(rows, slice) else rows.to(of.device)
    with exactly(of.device):
        weights = of.rows(rows)
        found, values = (t.detach().to(weights.dtype) for t in (out[..., rows, :], spread(v, weights)))
        if hard:
            return Certificate(_nearest(weights, values, found), tolerance(v, out) if given is None else given)
        gap = (weights @ values - found).abs()
        if given is not None:
            return Certificate(float(gap.max()), given)
        return _worst(gap, weights.abs() @ values.abs() + found.abs(), v, out)


@torch.no_grad()
def in_place(of: AttentionMap, v: Tensor, out: Tensor, given: float | None = None) -> Certificate:  # "*b c n" both
    """|P∘V − out| of a gate, whose weights broadcast to the values, against ε (P |v| + |out|)."""
    if 0 in of.shape or out.numel() == 0:
        return Certificate(0.0, given or 0.0)
    rows = checked(v.shape[-2])
    rows = rows if isinstance(rows, slice) else rows.to(of.device)
    weights = of.rows(slice(None) if of.shape[-2] == 1 else rows)
    found, values = (t[..., rows, :].to(weights.dtype) for t in (out, v))
    gap = (weights * values - found).abs()
    if given is not None:
        return Certificate(float(gap.max()), given)
    return _worst(gap, (weights * values).abs() + found.abs(), v, out)


def _worst(gap: Tensor, size: Tensor, v: Tensor, out: Tensor) -> Certificate:
    """Where the gap is greatest by its bound; one that is no number is the greatest."""
    least = max(torch.finfo(t.dtype).tiny for t in (v, out))
    bound = size.mul_(_coarse(v, out)).add_(least)
    at = (gap / bound).argmax()
    return Certificate(float(gap.flatten()[at]), float(bound.expand_as(gap).flatten()[at]))


def _coarse(*of: Tensor) -> float:
    return max(ROUNDING.get(t.dtype, 4e-2) for t in of)


@torch.no_grad()
def alike(of: AttentionMap, exact: Tensor, kind: torch.dtype) -> bool:  # "*b q k"
    """Σ_j |P_ij − w_ij| of every row is what rounding leaves: a map that is computed is that which was formed."""
    coarse = 2.0 * max(ROUNDING.get(one, 4e-2) for one in (exact.dtype, kind))
    step = max(1, _AT_ONCE // max(exact[..., :1, :].numel(), 1))
    for start in range(0, exact.shape[-2], step):
        part = slice(start, start + step)
        gap = torch.sub(of.rows(part), exact[..., part, :]).abs_().sum(-1)
        if gap.numel() and not float(gap.max()) <= coarse:  # what is no number is not alike
            return False
    return True


@torch.no_grad()
def left_of(before: Tensor, after: Tensor) -> bool:
    """Is this what dropout leaves: nothing, or all of them greater by one factor?"""
    coarse = 4.0 * max(ROUNDING.get(one.dtype, 4e-2) for one in (before, after))
    before, after = before.double(), after.double()
    alive = (after != 0) & (before.abs() > 1e-3)  # small ones of a half type are rounded too far
    ratio = after[alive] / before[alive]
    return ratio.numel() == 0 or float(ratio.max() - ratio.min()) <= coarse * float(ratio.max())


def _nearest(weights: Tensor, values: Tensor, found: Tensor) -> float:
    """How far what a hard read found is from the nearest value of any weight; nothing, where there is none."""
    worst = found.new_zeros(())
    for n in range(weights.shape[-2]):
        gap = (values - found[..., n : n + 1, :]).abs().amax(-1)
        alive = weights[..., n, :] > 0
        nearest = gap.masked_fill(~alive, torch.inf).amin(-1)
        empty = found[..., n, :].abs().amax(-1)
        worst = torch.maximum(worst, torch.where(alive.any(-1), nearest, empty).max())  # which keeps what is no number
    return float(worst)


def spread(v: Tensor, weights: Tensor) -> Tensor:
    """Values with every head repeated for the query heads that share it."""
    if v.ndim < 3 or weights.ndim < 3 or v.shape[-3] in (1, weights.shape[-3]):
        return v
    return v.repeat_interleave(weights.shape[-3] // v.shape[-3], dim=-3)


def tolerance(v: Tensor, out: Tensor) -> float:
    """What rounding may leave of one value, by the type that was computed in and the greatest."""
    coarse = _coarse(v, out)
    if v.numel() == 0:
        return coarse
    low, high = torch.aminmax(v.detach())
    return coarse * max(abs(float(low)), abs(float(high)))
