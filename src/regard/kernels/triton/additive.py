"""Additive attention by the kernels of additive_kernels.py, as a custom operator; see kernels/additive."""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.leading_axes import flatten, flatten_mask, restore_shape
from regard.kernels.operators import declare, like_inputs, register_gradient
from regard.kernels.triton import additive_kernels as kernels
from regard.kernels.triton.configs import TILES, padded_width
from regard.kernels.triton.launch import launch, mask_of, pad_width, precision

# |a|, |b| up to which e^{2a} e^{2b} neither overflows nor underflows to 0 · inf
_EXP_RANGE = 40.0


def attend(a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """softmax_j(sum_d w_d tanh(a_id + b_jd)) v_j, "*b q v", and the log sum of exponentials, "*b q", in float32.

    "*b q d", "*b k d", "d", "*b k v", and `allowed` "*b q k", True where a query may attend. Zeros and -inf in a row
    without an allowed key.
    """
    leads = [x.shape[:-2] for x in (a, b, v, allowed) if x is not None]
    lead, (q, k) = tuple(torch.broadcast_shapes(*leads)), (a.shape[-2], b.shape[-2])
    mask = None if allowed is None else flatten_mask(allowed, lead, q, k)
    a, b, v = (flatten(x, lead, torch.float32) for x in (a, b, v))
    out, lse = _attend(a, b, w.float(), v, mask)
    return restore_shape(out, lead, torch.float32), restore_shape(lse, lead, torch.float32)


def _is_in_range(a: Tensor, b: Tensor) -> Tensor:  # -> "n", int32
    return ((a.abs().amax((1, 2)) <= _EXP_RANGE) & (b.abs().amax((1, 2)) <= _EXP_RANGE)).to(torch.int32)


def _forward(a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    n, q, hidden = a.shape
    k, width = b.shape[1], v.shape[2]
    if 0 in (n, q, k):
        return v.new_zeros(n, q, width), a.new_full((n, q), -torch.inf if k == 0 else 0.0)
    value = padded_width(width)
    tile = TILES["additive.forward"]["float32"][value]
    out, lse = v.new_empty(n, q, value), a.new_empty(n, q)
    mask = mask_of(allowed, n, q, k, out)
    launch(
        *(kernels.forward, (n, q, tile.queries), tile.warps),
        *(a.transpose(1, 2).contiguous(), b.transpose(1, 2).contiguous(), w.contiguous(), pad_width(v, value)),
        *(mask.allowed, mask.counts, _is_in_range(a, b), out, lse, q, k, hidden, *mask.strides),
        VALUE=value, TILE_Q=tile.queries, TILE_K=tile.keys, HAS_MASK=mask.hides, PRECISION=precision(v),
    )  # fmt: skip
    return out[..., :width].contiguous(), lse


def _backward(
    a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    grad_lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    (n, q, hidden), (k, width) = a.shape, v.shape[1:]
    if 0 in (n, q, k):
        return torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(w), torch.zeros_like(v)
    # lse adds its gradient to that of every weight
    delta = ((grad * out).sum(-1) - grad_lse).contiguous()
    value = padded_width(width)
    # rows of very unequal widths would spill
    padded = max(padded_width(hidden), value // 8)
    in_range = _is_in_range(a, b)
    wide = (pad_width(a, padded), pad_width(b, padded), pad_width(w, padded), pad_width(v, value))
    mask = mask_of(allowed, n, q, k, lse)
    rows = (mask.allowed, mask.counts, in_range, lse.contiguous(), delta, pad_width(grad, value))
    constants: dict[str, Any] = {"HIDDEN": padded, "VALUE": value, "HAS_MASK": mask.hides}

    tile = TILES["additive.backward_queries"]["float32"][max(padded, value)]
    grad_a = a.new_empty(n, q, padded)
    grad_w = w.new_empty(n * -(-q // tile.queries), padded)
    launch(
        *(kernels.backward_queries, (n, q, tile.queries), tile.warps, *wide, *rows, grad_a, grad_w, q, k),
        *mask.strides,
        TILE=tile.queries,
        **constants,
    )
    tile = TILES["additive.backward_keys"]["float32"][max(padded, value)]
    grad_b, grad_v = b.new_empty(n, k, padded), v.new_empty(n, k, value)
    launch(
        *(kernels.backward_keys, (n, k, tile.keys), tile.warps, *wide, *rows, grad_b, grad_v, q, k),
        *mask.strides,
        TILE=tile.keys,
        **constants,
    )
    return (
        grad_a[..., :hidden].contiguous(),
        grad_b[..., :hidden].contiguous(),
        grad_w.sum(0)[:hidden].contiguous(),
        grad_v[..., :width].contiguous(),
    )


_attend = declare(
    "triton_additive",
    "(Tensor a, Tensor b, Tensor w, Tensor v, Tensor? allowed) -> (Tensor, Tensor)",
    _forward,
    lambda a, b, w, v, allowed: (v.new_empty(*a.shape[:2], v.shape[2]), a.new_empty(a.shape[:2])),
)
_attend_backward = declare(
    "triton_additive_backward",
    "(Tensor a, Tensor b, Tensor w, Tensor v, Tensor? allowed, Tensor out, Tensor lse, Tensor grad, Tensor grad_lse)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    like_inputs(0, 1, 2, 3),
)
register_gradient(_attend, _attend_backward, 5, slice(2), (0, 1, 2, 3), options=0)
