"""Keeps NaN and inf in masked keys from reaching the output: they are zeroed before any matrix product."""

import math

import torch
from torch import Tensor

from regard.attn.terms.mask import Mask, as_mask
from regard.attn.terms.position import Positions, default_positions
from regard.attn.terms.tiles import insert_head_axes, tiles
from regard.kernels.dispatch import values_are_readable
from regard.kernels.native_library import nonfinite_kernel

# torch sums more numbers than this faster than they are read one by one
_SMALL = 1 << 14
_NATIVE = (torch.float32, torch.float64)


def hide_nonfinite(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    positions: Positions | None,
    batch: tuple[int, ...],
    sound: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q, k and v without NaN and inf, and the rows that must become NaN (None: none). With `sound`, k and v are known
    finite.

    If values cannot be read (compiled code), keys and values that are masked for all queries of a sample are set to
    zero; those that are masked for some queries only are left unchanged.
    """
    if not values_are_readable(q):
        return q, *_zero_masked(q, k, v, mask, positions, batch), None
    if finite(*((q,) if sound else (q, k) if v is k else (q, k, v))):
        return q, k, v, None
    nonfinite_rows = None
    if not sound:
        k, v, nonfinite_rows = zero_nonfinite(k, v, mask, positions, q.shape[-2], batch)
    if finite(q):
        return q, k, v, nonfinite_rows
    # a non-finite query makes its own row NaN, but must not reach the gradient of the keys
    nan_queries = ~torch.isfinite(q).all(-1)
    rows = nan_queries if nonfinite_rows is None else nan_queries | nonfinite_rows
    return q.masked_fill(nan_queries.unsqueeze(-1), 0.0), k, v, rows


def hide_nonfinite_inputs(
    q: Tensor, k: Tensor, v: Tensor | None, mask: Mask | Tensor, positions: Positions | None, heads: int
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # "*b q d", "*b k e", "*b k v"
    """The inputs of a layer that projects them, without NaN and inf, and the rows that become NaN.

    Without a mask every row would. The gradient of the projections multiplies their input: it must not meet a NaN that
    is masked for all queries.
    """
    if not values_are_readable(q) or finite(*{id(t): t for t in (q, k, v) if t is not None}.values()):
        return q, k, v, None
    batch = (*torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]), heads)
    fitted = as_mask(mask).fit(batch, q.shape[-2], k.shape[-2], q.device)
    values = k if v is None else v
    keys, clean_values, nonfinite_rows = zero_nonfinite(
        k.unsqueeze(-3), values.unsqueeze(-3), fitted, positions, q.shape[-2], batch
    )
    keys, clean_values = keys.squeeze(-3), clean_values.squeeze(-3)
    nan_rows = None if nonfinite_rows is None else nonfinite_rows.any(-2)  # (*b, q)
    is_finite = torch.isfinite(q).all(-1)
    if not bool(is_finite.all()):
        nan_rows = ~is_finite if nan_rows is None else nan_rows | ~is_finite
        q = q.masked_fill(~is_finite.unsqueeze(-1), 0.0)
    return q, keys, None if v is None else clean_values, nan_rows


def _zero_masked(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, positions: Positions | None, batch: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    queries, keys = q.shape[-2], k.shape[-2]
    if queries == 0 or keys == 0:
        return k, v
    i, j = default_positions(queries, keys, k.device) if positions is None else positions
    allowed = insert_head_axes(
        mask.tile_coverage(tiles(i, queries), tiles(j, 1)).any_allowed, len(batch) + 2
    )  # (*b, 1, k)
    if allowed.shape[-1] != keys:
        return k, v
    masked = ~allowed.transpose(-1, -2)
    clean = k.masked_fill(_for_all(masked, k), 0)
    return clean, clean if v is k else v.masked_fill(_for_all(masked, v), 0)


def _for_all(masked: Tensor, t: Tensor) -> Tensor:
    """`masked` reduced to the leading axes of t: an entry that serves several samples or heads is masked if it is
    masked for all of them.
    """
    while masked.ndim > t.ndim:
        masked = masked.all(0)
    for axis in range(masked.ndim - 2):
        if masked.shape[axis] not in (1, t.shape[axis + t.ndim - masked.ndim]):
            masked = masked.all(axis, keepdim=True)
    return masked


def zero_nonfinite(
    k: Tensor, v: Tensor, mask: Mask, positions: Positions | None, queries: int, batch: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys and values without NaN and inf, and the rows that may attend to one.

    A masked key must not reach the query; but 0 · NaN is NaN in every matrix product, forward and backward. So all
    non-finite numbers are zeroed first, and the rows that may attend to one are set to NaN afterwards.
    """
    if finite(*((k,) if v is k else (k, v))):
        return k, v, None
    with torch.no_grad():
        is_finite = torch.isfinite(k).all(-1) & torch.isfinite(v).all(-1)  # (*b, k)
        columns = (~is_finite.reshape(-1, is_finite.shape[-1]).all(0)).nonzero().squeeze(-1)
        i, j = default_positions(queries, k.shape[-2], k.device) if positions is None else positions
        allowed = insert_head_axes(mask.slice(slice(None), columns).dense(i, j[..., columns]), len(batch) + 2)
        is_nonfinite = ~is_finite[..., columns].unsqueeze(-2)
        if is_nonfinite.ndim > 2 and is_nonfinite.shape[-3] not in (1, batch[-1]):  # heads that share a key
            is_nonfinite = is_nonfinite.repeat_interleave(batch[-1] // is_nonfinite.shape[-3], dim=-3)
        nonfinite_rows = (allowed & is_nonfinite).any(-1)
    nonfinite = ~is_finite.unsqueeze(-1)
    clean = k.masked_fill(nonfinite, 0)
    rows = nonfinite_rows if bool(nonfinite_rows.any()) else None
    return clean, clean if v is k else v.masked_fill(nonfinite, 0), rows


def finite(*tensors: Tensor) -> bool:
    """Whether the tensors surely contain no NaN or inf. Small ones are read in native code, of the others one sum is
    taken; a sum that overflows its dtype counts as non-finite.
    """
    is_nonfinite = nonfinite_kernel()
    for t in tensors:
        count = t.numel()
        if is_nonfinite and count <= _SMALL and t.dtype in _NATIVE and t.is_cpu and t.is_contiguous():
            if is_nonfinite(t.dtype == torch.float64, count, t.data_ptr()):
                return False
        elif not math.isfinite((t.detach() if t.requires_grad else t).sum().item()):
            return False
    return True
