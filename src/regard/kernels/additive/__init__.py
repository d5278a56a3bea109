"""Additive attention: softmax_j(sum_d w_d tanh(a_id + b_jd)) v_j  (Bahdanau et al. 2015, A.1.2).

a and b are projected queries and keys. The broadcast form holds a (q, k, d) tensor and computes one tanh per element.
These functions never hold that tensor as a whole: compute.py has the algorithm, csrc/additive.h its native form.
Gradients of any order; torch.func, torch.compile and torch.export work.

float32 and float64 are computed as they are, bfloat16 and float16 in float32. Leading axes broadcast as in
torch.matmul. `native` None uses the native kernels where they run, True requires them, False uses torch.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.kernels.additive import compute
from regard.kernels.additive.autograd import (
    AttendFunction,
    ScoresFunction,
    WeightsFunction,
    plain_scores,
    plain_weights,
)
from regard.kernels.dispatch import autocast_disabled, choose_route
from regard.kernels.leading_axes import flatten, flatten_mask, restore_shape
from regard.kernels.native_library import resolve_native

Implementation = Literal["native", "torch", "broadcast", "operator", "plain"]
"""A route, where "direct" is one of three: native, the same algorithm in torch, or the broadcast form if it is tiny."""


def scores(a: Tensor, b: Tensor, w: Tensor, native: bool | None = None) -> Tensor:
    """sum_d w_d tanh(a_id + b_jd): "*b q d", "*b k d", "d" -> "*b q k"."""
    inputs = _prepare(a, b, w, None, None)
    with autocast_disabled(a.device):
        out = _scores(inputs, native)
    return restore_shape(out, inputs.lead, inputs.dtype)


def weights(
    a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None = None, native: bool | None = None
) -> tuple[Tensor, Tensor]:
    """softmax over the allowed keys ("*b q k", True = may attend), and its log sum of exponentials ("*b q").

    A query with no allowed key has weights 0 and log sum -inf. The content of a forbidden key, NaN included, has no
    effect.
    """
    inputs = _prepare(a, b, w, None, allowed)
    with autocast_disabled(a.device):
        out, lse = _weights(inputs, _choose_implementation(inputs, native), native)
    return restore_shape(out, inputs.lead, inputs.dtype), restore_shape(lse, inputs.lead, lse.dtype)


def attend(
    a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None = None, native: bool | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scores) @ v ("*b q v") and the log sum of exponentials ("*b q", float32 for half types).

    Weights larger than `compute.KEEP_BYTES` are not kept; the backward pass computes them again, one block of queries
    at a time. A key that is forbidden to every query may hold NaN in b and in v.
    """
    inputs = _prepare(a, b, w, v, allowed)
    a, b, w, values, mask = inputs.a, inputs.b, inputs.w, inputs.v, inputs.allowed
    assert values is not None
    with autocast_disabled(a.device):
        implementation = _choose_implementation(inputs, native)
        weight_bytes = a.shape[0] * a.shape[1] * b.shape[1] * a.element_size()
        if implementation in ("plain", "broadcast") or weight_bytes <= compute.KEEP_BYTES:
            shares, lse = _weights(inputs, implementation, native)
            if implementation not in ("plain", "operator"):
                out = compute.mix(shares, values, mask)
            else:
                out = shares @ (values if mask is None else values.masked_fill(~mask.any(-2).unsqueeze(-1), 0))
        elif implementation == "operator":
            from regard.kernels.additive import custom_ops

            out, lse = custom_ops.attend(a, b, w, values, mask, native)
        else:
            out, lse = AttendFunction.apply(a, b, w, values, mask, implementation == "native")
    return restore_shape(out, inputs.lead, inputs.dtype), restore_shape(lse, inputs.lead, lse.dtype)


class _Inputs(NamedTuple):
    """The arguments as the kernels take them: one leading axis, one dtype."""

    a: Tensor  # n q d
    b: Tensor  # n k d
    w: Tensor  # d
    v: Tensor | None  # n k v
    allowed: Tensor | None  # n q k, any axis may be 1
    lead: tuple[int, ...]
    dtype: torch.dtype  # dtype of the returned tensors


def _prepare(a: Tensor, b: Tensor, w: Tensor, v: Tensor | None, allowed: Tensor | None) -> _Inputs:
    if a.ndim < 2 or b.ndim < 2 or w.ndim != 1 or not a.shape[-1] == b.shape[-1] == w.shape[0]:
        raise ValueError(
            f"a, b, w must be (*b, q, d), (*b, k, d), (d): got {tuple(a.shape)}, {tuple(b.shape)}, {tuple(w.shape)};"
            " project queries and keys to the width of w"
        )
    if v is not None and (v.ndim < 2 or v.shape[-2] != b.shape[-2]):
        raise ValueError(f"v must be (*b, k, v), one value per key: got {tuple(v.shape)} for {b.shape[-2]} keys of b")
    if allowed is not None and allowed.dtype != torch.bool:
        raise TypeError(f"allowed must be bool, True where a query may attend: got {allowed.dtype}; try allowed != 0")
    tensors = (a, b, w) if v is None else (a, b, w, v)
    dtype = a.dtype
    for tensor in tensors:
        if tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
    if not dtype.is_floating_point:
        raise TypeError(f"a, b, w must be floating point: got {a.dtype}, {b.dtype}, {w.dtype}; try a.float()")
    q, k, lead = a.shape[-2], b.shape[-2], tuple(a.shape[:-2])
    other_leads = [x.shape[:-2] for x in (b, v, allowed) if x is not None]
    if any(other != lead for other in other_leads):
        lead = tuple(torch.broadcast_shapes(lead, *other_leads))
    computed = torch.float32 if dtype.itemsize < 4 else dtype
    if allowed is not None:
        allowed = flatten_mask(allowed, lead, q, k)
    v = None if v is None else flatten(v, lead, computed)
    return _Inputs(flatten(a, lead, computed), flatten(b, lead, computed), w.to(computed), v, allowed, lead, dtype)


def _choose_implementation(inputs: _Inputs, native: bool | None) -> Implementation:
    route = choose_route(inputs.a, inputs.b, inputs.w, inputs.v, inputs.allowed)
    if route != "direct":
        return route
    if resolve_native(native, inputs.a, inputs.w):
        return "native"
    return "broadcast" if compute.is_broadcast_fastest(inputs.a, inputs.b) else "torch"


def _scores(inputs: _Inputs, native: bool | None) -> Tensor:
    a, b, w = inputs.a, inputs.b, inputs.w
    match _choose_implementation(inputs, native):
        case "plain" | "broadcast":
            return plain_scores(a, b, w)
        case "operator":
            from regard.kernels.additive import custom_ops

            return custom_ops.scores(a, b, w, native)
        case implementation:
            return ScoresFunction.apply(a, b, w, implementation == "native")


def _weights(inputs: _Inputs, implementation: Implementation, native: bool | None) -> tuple[Tensor, Tensor]:
    a, b, w, allowed = inputs.a, inputs.b, inputs.w, inputs.allowed
    match implementation:
        case "plain":
            return plain_weights(a, b, w, allowed)
        case "broadcast":
            # checking that one sum is finite is cheaper than applying a mask to every (q, k, d)
            finite = allowed is None or (a.device.type == "cpu" and bool((a.sum() + b.sum()).isfinite()))
            return plain_weights(a, b, w, allowed, guard=not finite)
        case "operator":
            from regard.kernels.additive import custom_ops

            return custom_ops.weights(a, b, w, allowed, native)
        case _:
            # torch.autograd.Function would take a third of the time of a small call, without a derivative to prepare
            if not torch.is_grad_enabled():
                return compute.weights_forward(a, b, w, allowed, implementation == "native")
            return WeightsFunction.apply(a, b, w, allowed, implementation == "native")
