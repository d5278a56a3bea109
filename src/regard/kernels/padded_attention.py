"""softmax(s q kᵀ) v of padded samples, each over its own interval of keys, in native code with its gradient.

For texts of at most a few hundred tokens: there torch's kernel, made for long ones, takes several times as long.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.native_library import call_kernel, contiguous_rows
from regard.kernels.second_derivatives import differentiable_gradients

# the kernels for long texts are as fast with more keys than this
MOST_KEYS = 512


def padded_attention(
    q: Tensor, k: Tensor, v: Tensor, spans: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:  # "b h q d", "b g k d" twice, long "b 2" -> "b h q d", lse "b h q"
    """The attention of every query to the keys from spans[:, 0] to before spans[:, 1], or to all, and the log-sum-exp.

    Causal queries, the last of the keys, attend to no later key. A query without a key gets zeros.
    """
    if spans is None:
        spans = span_table(((0, k.shape[-2]),) * q.shape[0])
    needs_grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if needs_grad:
        out, lse = _PaddedFunction.apply(q, k, v, spans, scale, causal)
        return out, lse
    return _forward(contiguous_rows(q), contiguous_rows(k), contiguous_rows(v), spans, scale, causal)


@functools.lru_cache(maxsize=64)
def span_table(spans: tuple[tuple[int, int], ...]) -> Tensor:  # long "b 2"
    """The first key of each sample and the key behind its last one, kept for later calls, which may need a gradient."""
    with torch.inference_mode(False):
        return torch.tensor(spans, device="cpu")


@functools.lru_cache(maxsize=256)
def _stride_table(*strides: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(strides, device="cpu")


def _forward(q: Tensor, k: Tensor, v: Tensor, spans: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    b, h, n, d = q.shape
    out, lse = q.new_empty(b, n, h, d), q.new_empty(b, h, n)
    _call(q, k, v, spans, scale, causal, out, lse, None, (None, None, None))
    return out.transpose(1, 2), lse


def _call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spans: Tensor,
    scale: float,
    causal: bool,
    out: Tensor,
    lse: Tensor,
    grad: Tensor | None,
    grads: tuple[Tensor | None, ...],
) -> None:
    (b, h, n, d), (_, g, m, _) = q.shape, k.shape
    tensors = (q, k, v) if grad is None else (q, k, v, grad)
    strides = _stride_table(*(s for t in tensors for s in t.stride()[:3]))
    call_kernel("regard_padded", q, b, h, g, n, m, d, scale, causal, strides, spans, q, k, v, out, lse, grad, *grads)


class _PaddedFunction(Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: Tensor, scale: float, causal: bool
    ) -> tuple[Tensor, Tensor]:
        out, lse = _forward(contiguous_rows(q), contiguous_rows(k), contiguous_rows(v), spans, scale, causal)
        ctx.save_for_backward(q, k, v, spans, out, lse)
        ctx.rest = scale, causal
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, spans, out, lse = ctx.saved_tensors
        if torch.is_grad_enabled():
            scale, causal = ctx.rest
            equation = functools.partial(_equation, spans=spans, scale=scale, causal=causal)
            return (*differentiable_gradients(equation, (q, k, v), grad), None, None, None)
        grads = tuple(torch.empty_like(t.transpose(1, 2), memory_format=torch.contiguous_format) for t in (q, k, v))
        scale, causal = ctx.rest
        q, k, v, grad = (contiguous_rows(t) for t in (q, k, v, grad))
        # hooks of saved tensors may have changed the layout
        out, lse = out.transpose(1, 2).contiguous(), lse.contiguous()
        _call(q, k, v, spans, scale, causal, out, lse, grad, grads)
        return (*(t.transpose(1, 2) for t in grads), None, None, None)


def _equation(
    q: Tensor, k: Tensor, v: Tensor, spans: Tensor, scale: float, causal: bool
) -> Tensor:  # "b h q d", "b g k d" twice, long "b 2" -> "b h q d"
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    n, m = q.shape[2], k.shape[2]
    keys = torch.arange(m, device="cpu")
    allowed = ((keys >= spans[:, :1]) & (keys < spans[:, 1:]))[:, None, None]
    if causal:
        allowed = allowed & (keys <= torch.arange(m - n, m, device="cpu")[:, None])
    scores = (q * scale @ k.transpose(-1, -2)).masked_fill(~allowed, torch.finfo(q.dtype).min)
    return torch.softmax(scores, -1).masked_fill(~allowed, 0.0) @ v
