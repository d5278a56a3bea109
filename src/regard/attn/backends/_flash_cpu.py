"""torch's flash attention kernel for CPUs, block by block: softmax(scale · q kᵀ + mask) v with its log-sum-exp.

The kernel and its backward are called by name because scaled_dot_product_attention neither returns the log-sum-exp nor
can skip masked blocks. `available` is False if they are missing.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan
from regard.attn.backends._span_groups import SpanGroup
from regard.attn.call_tensors import put_tensors
from regard.kernels.native_library import contiguous_rows
from regard.kernels.second_derivatives import differentiable_gradients, zero_gradients

_FORWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def available(t: Tensor) -> bool:
    return t.is_cpu and _FORWARD is not None and _BACKWARD is not None


def flash_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """out and lse of a whole call, "b h q c"; the last axis of each tensor has stride 1."""
    out, lse = _FORWARD(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v of a whole call."""
    dq, dk, dv = _BACKWARD(grad, q, k, v, out, lse, 0.0, causal, scale=scale)
    return dq, dk, dv


def flash_part(q: Tensor, k: Tensor, v: Tensor, numbers: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """out and lse of a part, with numbers added to its scores."""
    out, lse = _FORWARD(q, k, v, 0.0, False, attn_mask=numbers, scale=scale)
    return out, lse


def flash_part_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, numbers: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v of a part; `out` and `lse` are those of whole rows."""
    dq, dk, dv = _BACKWARD(g, q, k, v, out, lse, 0.0, False, attn_mask=numbers, scale=scale)
    return dq, dk, dv


def pad_to_same_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pads q, k and v with zeros to one width: with unequal widths the kernel uses a slow path."""
    missing = k.shape[-1] - v.shape[-1]
    if missing > 0:
        return q, k, F.pad(v, (0, missing))
    if missing < 0:
        return F.pad(q, (0, -missing)), F.pad(k, (0, -missing)), v
    return q, k, v


def whole_span(q: Tensor, k: Tensor) -> BlockSpan:
    """The one span of all queries and keys."""
    return BlockSpan(None, slice(0, q.shape[-2]), slice(0, k.shape[-2]), True)


def hidden_scores(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for an allowed pair, −inf for every other."""
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -math.inf)


def float_mask(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:  # "b h q k", any of the first two axes 1
    """The mask as the kernel takes it: numbers added to the scores."""
    if mask.dtype == torch.bool:
        mask = hidden_scores(mask, q.dtype)
    return mask.expand(*mask.shape[:-2], q.shape[-2], k.shape[-2])


class Flash(torch.autograd.Function):
    """out, lse of (b, h, q, c), (b, g, k, c), (b, g, k, c), span by span; a query in no span gets zeros.

    A null slot with the score n, `sink` broadcast to (b, h, q), takes its share of every row: out ∘ σ(lse − n). From
    this and log(exp(lse) + exp(n)) the kernel computes the exact gradient.

    `template` with `tensors` in its slots (`take_tensors`) is the numbers added to the scores, or a function of a span
    that returns them or None. Without a template the one span is the whole call. Second derivatives are those of the
    plain equation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        spans: Sequence[BlockSpan | SpanGroup],
        template: Any,
        scale: float,
        causal: bool,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        originals = q, k, v  # the original tensors: a copy made here would have no graph
        added = put_tensors(template, tensors)
        q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
        if added is None:
            out, lse = flash_forward(q, k, v, causal, scale)
        else:
            b, h, n, _ = q.shape
            out = torch.empty(b, n, h, v.shape[-1], dtype=q.dtype).transpose(1, 2)
            lse = torch.empty(b, n, h, dtype=torch.promote_types(q.dtype, torch.float32)).transpose(1, 2)
            if sum(span.count_queries(b) for span in spans) < b * n:
                out.zero_()
                lse.fill_(-math.inf)
            for span in spans:
                part = span.take_queries(q), span.take_keys(k), span.take_keys(v)
                results = flash_part(*part, _numbers(added, span), scale)
                for whole, result in zip((out, lse), results, strict=True):
                    span.put_queries(whole, result)
        if sink is not None:
            # finite: the lse of a row without a key is −inf, and so may be the null slot
            lse = lse.clamp_min(torch.finfo(lse.dtype).min)
            out.mul_(torch.sigmoid(lse - sink).unsqueeze(-1))
            lse = torch.logaddexp(lse, sink)
        ctx.save_for_backward(*originals, sink, out, lse, *tensors)
        ctx.rest = spans, template, scale, causal
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sink, out, lse, *tensors = ctx.saved_tensors
        spans, template, scale, causal = ctx.rest
        added, no_gradients = put_tensors(template, tensors), (None,) * (4 + len(tensors))
        if not spans:
            return (*zero_gradients(q, k, v, sink), *no_gradients)
        if torch.is_grad_enabled():
            equation = functools.partial(_equation, spans=spans, added=added, scale=scale, causal=causal)
            inputs = (q, k, v) if sink is None else (q, k, v, sink)
            return (*differentiable_gradients(equation, inputs, g), *([None] if sink is None else []), *no_gradients)
        dsink = None
        if sink is not None and ctx.needs_input_grad[3]:
            # every weight of a row falls by its product with the weight of the null slot
            by_row = -(g * out).sum(-1) * (sink - lse).exp()
            dsink = by_row.sum_to_size(sink.shape)
        g, q, k, v = contiguous_rows(g), contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
        if added is None:
            return (*flash_backward(g, q, k, v, out, lse, causal, scale), dsink, *no_gradients)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for span in spans:
            g_part, q_part, out_part, lse_part = (span.take_queries(t) for t in (g, q, out, lse))
            part = g_part, q_part, span.take_keys(k), span.take_keys(v), out_part, lse_part
            gradients = flash_part_backward(*part, _numbers(added, span), scale)
            span.put_queries(dq, gradients[0])
            span.add_keys(dk, gradients[1])
            span.add_keys(dv, gradients[2])
        return (dq, dk, dv, dsink, *no_gradients)


def _numbers(added: Any, span: BlockSpan | SpanGroup) -> Tensor | None:
    """The numbers added to the scores of a span."""
    return added if added is None or isinstance(added, Tensor) else added(span)


def _equation(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None = None,
    *,
    spans: Sequence[BlockSpan | SpanGroup],
    added: Any,
    scale: float,
    causal: bool,
) -> Tensor:
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    # zeros that depend on every input, even without a span
    out = q.new_zeros(*q.shape[:-1], v.shape[-1]) + (q.sum() + k.sum() + v.sum()) * 0
    for span in spans:
        s = (span.take_queries(q) * scale) @ span.take_keys(k).transpose(-1, -2)
        numbers = _numbers(added, span)
        if causal:
            numbers = torch.full(s.shape[-2:], -math.inf, dtype=s.dtype).triu(1)
        masked = torch.zeros((), dtype=torch.bool) if numbers is None else numbers == -math.inf
        s = s if numbers is None else (s + numbers).masked_fill(masked, torch.finfo(s.dtype).min)
        if sink is None:
            weights = torch.softmax(s, -1)
        else:
            slot = span.take_queries(sink.to(s.dtype).expand(q.shape[:-1])).unsqueeze(-1)
            weights = torch.softmax(torch.cat([s, slot], -1), -1)[..., :-1]
        span.put_queries(out, weights.masked_fill(masked, 0.0) @ span.take_keys(v))
    return out
