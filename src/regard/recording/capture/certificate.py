"""The certificate of a map: |P·V − out| over some of its rows, and how much of it rounding explains."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.kernels.dispatch import autocast_disabled

# rows that are checked, the first and the last among them
ROWS = 32
# weights that are compared at a time
_CHUNK = 1 << 22
# ε: the relative rounding error of a kernel's sums; twice that of one number in half types, whose sums are made in
# float32
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}


@lru_cache(maxsize=64)
def checked_rows(queries: int) -> Tensor | slice:
    """The rows that are checked: all, or ROWS of them, evenly spaced."""
    if queries <= ROWS:
        return slice(None)
    return torch.tensor([round(n * (queries - 1) / (ROWS - 1)) for n in range(ROWS)])


def rows_of(queries: int, device: torch.device) -> Tensor | slice:
    """The rows that are checked, as an index on a device."""
    rows = checked_rows(queries)
    return rows if isinstance(rows, slice) else rows.to(device)


class Certificate(NamedTuple):
    """|P·V − out| where it is greatest relative to its rounding bound, and that bound."""

    certificate: float
    tolerance: float


def certify(
    weights: AttentionMap, v: Tensor, out: Tensor, hard: bool = False, tolerance: float | None = None
) -> Certificate:  # "*b k v", "*b q v"
    """|P·V − out| against `tolerance`, or against ε (Σ_j P_ij |v_j| + |out_i|).

    Of a hard read, which takes one value: the distance to the nearest value that it may have taken.
    """
    if 0 in weights.shape or out.numel() == 0:
        return Certificate(0.0, tolerance or 0.0)
    rows = rows_of(weights.shape[-2], weights.device)
    with autocast_disabled(weights.device):
        p = weights.rows(rows)
        output, values = out[..., rows, :].detach(), repeat_heads(v.detach(), p)
        if hard:
            distance = _distance_to_nearest(p, values.to(p.dtype), output.to(p.dtype))
            return Certificate(distance, rounding_bound(v, out) if tolerance is None else tolerance)
        return compare(p.unsqueeze(0), values.unsqueeze(0), output.unsqueeze(0), tolerance)[0]


def compare(
    p: Tensor, v: Tensor, out: Tensor, tolerance: float | None
) -> list[Certificate]:  # "n *b q k", "n *b k v", "n *b q v"
    """|P·V − out| of each of n maps, against `tolerance` or ε (Σ_j |P_ij| |v_j| + |out_i|)."""
    values, output = v.to(p.dtype), out.to(p.dtype)
    gap = (p @ values).sub_(output).abs_()
    if tolerance is not None:
        return [Certificate(worst, tolerance) for worst in gap.flatten(1).amax(1).tolist()]
    size = (p.abs() @ values.abs()).add_(output.abs())
    return _worst(gap, size, v.dtype, out.dtype)


@torch.no_grad()
def certify_gate(
    weights: AttentionMap, v: Tensor, out: Tensor, tolerance: float | None = None
) -> Certificate:  # "*b c n" both
    """|P∘V − out| of a gate, whose weights broadcast to the values, against `tolerance` or ε (P |v| + |out|)."""
    if 0 in weights.shape or out.numel() == 0:
        return Certificate(0.0, tolerance or 0.0)
    rows = rows_of(v.shape[-2], weights.device)
    p = weights.rows(slice(None) if weights.shape[-2] == 1 else rows)
    output, values = (t[..., rows, :].to(p.dtype) for t in (out, v))
    gap = (p * values - output).abs()
    if tolerance is not None:
        return Certificate(float(gap.max()), tolerance)
    return _worst(gap.unsqueeze(0), ((p * values).abs() + output.abs()).unsqueeze(0), v.dtype, out.dtype)[0]


def _worst(gap: Tensor, size: Tensor, *kinds: torch.dtype) -> list[Certificate]:  # "n …" both
    """The gap of each of n maps that is greatest relative to its bound; argmax takes NaN for the greatest."""
    least = max(torch.finfo(kind).tiny for kind in kinds)
    bound = size.mul_(_rounding(*kinds)).add_(least)
    gap, bound = gap.flatten(1), bound.expand_as(gap).flatten(1)
    at = (gap / bound).argmax(1, keepdim=True)
    worst = torch.cat([gap.gather(1, at), bound.gather(1, at)], 1)
    return [Certificate(*pair) for pair in worst.tolist()]


def _rounding(*kinds: torch.dtype) -> float:
    """ε of the coarsest of the types."""
    return max(ROUNDING.get(kind, 4e-2) for kind in kinds)


@torch.no_grad()
def matches(weights: AttentionMap, formed: Tensor, dtype: torch.dtype) -> bool:  # "*b q k"
    """Whether a computed map equals the weights that the model formed: Σ_j |P_ij − w_ij| ≤ 2ε in every row."""
    bound = 2.0 * _rounding(formed.dtype, dtype)
    step = max(1, _CHUNK // max(formed[..., :1, :].numel(), 1))
    for start in range(0, formed.shape[-2], step):
        rows = slice(start, start + step)
        gap = torch.sub(weights.rows(rows), formed[..., rows, :]).abs_().sum(-1)
        if gap.numel() and not float(gap.max()) <= bound:  # NaN does not match
            return False
    return True


@torch.no_grad()
def is_dropout_of(after: Tensor, before: Tensor) -> bool:
    """Whether `after` equals dropout of `before`: each entry zero or scaled by one common factor."""
    bound = 4.0 * _rounding(before.dtype, after.dtype)
    before, after = before.double(), after.double()
    alive = (after != 0) & (before.abs() > 1e-3)  # smaller weights of a half type are rounded too coarsely
    ratio = after[alive] / before[alive]
    return ratio.numel() == 0 or float(ratio.max() - ratio.min()) <= bound * float(ratio.max())


def _distance_to_nearest(weights: Tensor, values: Tensor, output: Tensor) -> float:
    """The distance of a hard read's result from the nearest value with a weight; from zero, where no key has one."""
    worst = output.new_zeros(())
    for n in range(weights.shape[-2]):
        gap = (values - output[..., n : n + 1, :]).abs().amax(-1)
        alive = weights[..., n, :] > 0
        nearest = gap.masked_fill(~alive, torch.inf).amin(-1)
        empty = output[..., n, :].abs().amax(-1)
        worst = torch.maximum(worst, torch.where(alive.any(-1), nearest, empty).max())  # maximum keeps NaN
    return float(worst)


def repeat_heads(v: Tensor, weights: Tensor) -> Tensor:
    """Values with every head repeated for the query heads that share it."""
    if v.ndim < 3 or weights.ndim < 3 or v.shape[-3] in (1, weights.shape[-3]):
        return v
    return v.repeat_interleave(weights.shape[-3] // v.shape[-3], dim=-3)


def rounding_bound(v: Tensor, out: Tensor) -> float:
    """The rounding error of one value, by the types of both tensors and the greatest value."""
    epsilon = _rounding(v.dtype, out.dtype)
    if v.numel() == 0:
        return epsilon
    low, high = torch.aminmax(v.detach())
    return epsilon * max(abs(float(low)), abs(float(high)))
