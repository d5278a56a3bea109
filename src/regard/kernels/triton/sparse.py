"""Sparsemax and entmax 1.5 of dot products by the kernels of sparse_kernels.py, as a custom operator."""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.leading_axes import flatten, flatten_mask, restore_shape
from regard.kernels.operators import declare, like_inputs, register_gradient
from regard.kernels.triton import sparse_kernels as kernels
from regard.kernels.triton.configs import TILES, padded_width
from regard.kernels.triton.launch import MaskArguments, kind_of, launch, mask_of, pad_width, precision


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, squared: bool) -> Tensor:
    """normalize(scale · q kᵀ) v, "*b q v": sparsemax, or entmax 1.5 if `squared`.

    "*b q d", "*b k d", "*b k v", and `allowed` "*b q k", True where a query may attend. Half types are multiplied as
    they are and summed in float32; different types meet in float32.
    """
    lead = tuple(torch.broadcast_shapes(*[x.shape[:-2] for x in (q, k, v, allowed) if x is not None]))
    mask = None if allowed is None else flatten_mask(allowed, lead, q.shape[-2], k.shape[-2])
    dtype = q.dtype if q.dtype == k.dtype == v.dtype else torch.float32
    out, _, _ = _attend(*(flatten(x, lead, dtype) for x in (q, k, v)), mask, scale, squared)
    return restore_shape(out, lead, dtype)


def _launch(
    name: str,
    mask: MaskArguments,
    tensors: tuple[Tensor, ...],
    results: tuple[Tensor, ...],
    scale: float,
    squared: bool,
) -> None:
    """Runs the kernel on padded tensors: q, k, perhaps v, and what it reads else. That of keys owns tiles of keys."""
    q, k = tensors[:2]
    (n, q_len, width), k_len = q.shape, k.shape[1]
    constants: dict[str, Any] = {"WIDTH": width} | ({} if name == "threshold" else {"VALUE": width})
    tile = TILES[f"sparse.{name}"][kind_of(q)][width]
    rows = (n, k_len, tile.keys) if name == "backward_keys" else (n, q_len, tile.queries)
    operands = 2 if name == "threshold" else 3
    launch(
        *(getattr(kernels, name), rows, tile.warps, *tensors[:operands], mask.allowed, mask.counts),
        *(*tensors[operands:], *results, scale, q_len, k_len, *mask.strides),
        TILE_Q=tile.queries, TILE_K=tile.keys, HAS_MASK=mask.hides, SQUARED=squared,
        PRECISION=precision(q), **constants,
    )  # fmt: skip


def _padded(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All with the rows of the widest: tiles of unequal widths would spill."""
    width = padded_width(max(t.shape[-1] for t in tensors))
    return tuple(pad_width(t, width) for t in tensors)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float, squared: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and the greatest score and the threshold of every row."""
    (n, q_len, _), (k_len, width) = q.shape, v.shape[1:]
    top, tau = (torch.full((n, q_len), fill, device=q.device) for fill in (0.0, torch.inf))
    if 0 in (n, q_len, k_len):
        return v.new_zeros(n, q_len, width), top, tau
    mask = mask_of(allowed, n, q_len, k_len, q)
    wide = _padded(q, k, v)
    out = v.new_empty(n, q_len, wide[2].shape[2])
    _launch("threshold", mask, wide[:2], (top, tau), scale, squared)
    _launch("forward", mask, (*wide, top, tau), (out,), scale, squared)
    return out[..., :width].contiguous(), top, tau


def _backward(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, top: Tensor, tau: Tensor, grad: Tensor, _top: Tensor,
    _tau: Tensor, scale: float, squared: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v; nothing depends on those of the greatest score and the threshold."""
    (n, q_len, width), (k_len, value_width) = q.shape, v.shape[1:]
    if 0 in (n, q_len, k_len):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    mask = mask_of(allowed, n, q_len, k_len, q)
    *wide, wide_grad = _padded(q, k, v, grad)
    mean = torch.empty_like(tau)
    rows = (top, tau, wide_grad)
    grad_q, grad_k, grad_v = (torch.empty_like(t) for t in wide)
    _launch("backward_means", mask, (*wide, *rows), (mean,), scale, squared)
    _launch("backward_queries", mask, (*wide, *rows, mean), (grad_q,), scale, squared)
    _launch("backward_keys", mask, (*wide, *rows, mean), (grad_k, grad_v), scale, squared)
    return (
        grad_q[..., :width].contiguous(),
        grad_k[..., :width].contiguous(),
        grad_v[..., :value_width].contiguous(),
    )


def _rows(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[:2], dtype=torch.float32)


_attend = declare(
    "triton_sparse",
    "(Tensor q, Tensor k, Tensor v, Tensor? allowed, float scale, bool squared) -> (Tensor, Tensor, Tensor)",
    _forward,
    lambda q, k, v, *_: (v.new_empty(*q.shape[:2], v.shape[2]), _rows(q), _rows(q)),
)
_attend_backward = declare(
    "triton_sparse_backward",
    "(Tensor q, Tensor k, Tensor v, Tensor? allowed, Tensor top, Tensor tau, Tensor grad, Tensor grad_top, "
    "Tensor grad_tau, float scale, bool squared) -> (Tensor, Tensor, Tensor)",
    _backward,
    like_inputs(0, 1, 2),
)
register_gradient(_attend, _attend_backward, 4, slice(1, 3), (0, 1, 2), options=2)
