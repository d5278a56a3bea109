"""torch's flash attention kernel for CPUs, block by block: softmax(scale · q kᵀ + mask) v with its log-sum-exp.

The kernel and its backward are called by name because scaled_dot_product_attention neither returns the log-sum-exp nor
can skip masked blocks. `available` is False if they are missing.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan
from regard.attn.call_tensors import put_tensors
from regard.attn.terms.mask import Rows

_FORWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def available(t: Tensor) -> bool:
    return t.device.type == "cpu" and _FORWARD is not None and _BACKWARD is not None


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


def pad_to_same_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pads q, k and v with zeros to one width: with unequal widths the kernel uses a slow path."""
    missing = k.shape[-1] - v.shape[-1]
    if missing > 0:
        return q, k, F.pad(v, (0, missing))
    if missing < 0:
        return F.pad(q, (0, -missing)), F.pad(k, (0, -missing)), v
    return q, k, v


def _select(t: Tensor, sample: int | None, index: Rows) -> Tensor:
    """Some positions of one sample, or of all: (b, h, n, w) -> (1 or b, h, m, w)."""
    if sample is not None:
        t = t[sample : sample + 1] if t.shape[0] > 1 else t
    return t[:, :, index]


def _unit_stride(t: Tensor) -> Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


class Flash(torch.autograd.Function):
    """out, lse of (b, h, q, c), (b, g, k, c), (b, g, k, c), span by span; a query in no span gets zeros.

    `template` with `tensors` in its slots (`take_tensors`) is a function of a span: the numbers added to its scores, or
    None. Without a template the one span is the whole call. Second derivatives are those of the plain equation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spans: list[BlockSpan],
        template: Any,
        scale: float,
        causal: bool,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        originals = q, k, v  # the original tensors: a copy made here would have no graph
        biases = put_tensors(template, tensors)
        q, k, v = _unit_stride(q), _unit_stride(k), _unit_stride(v)
        if biases is None:
            out, lse = flash_forward(q, k, v, causal, scale)
        else:
            b, h, n, _ = q.shape
            out = torch.empty(b, n, h, v.shape[-1], dtype=q.dtype).transpose(1, 2)
            lse = torch.empty(b, n, h, dtype=torch.promote_types(q.dtype, torch.float32)).transpose(1, 2)
            if not _covers_all_queries(spans, b, n):
                out.zero_()
                lse.fill_(-math.inf)
            for span in spans:
                results = _FORWARD(
                    _select(q, span.sample, span.rows),
                    _select(k, span.sample, span.columns),
                    _select(v, span.sample, span.columns),
                    0.0,
                    causal,
                    attn_mask=biases(span),
                    scale=scale,
                )
                samples = slice(None) if span.sample is None else slice(span.sample, span.sample + 1)
                out[samples, :, span.rows], lse[samples, :, span.rows] = results
        ctx.save_for_backward(*originals, out, lse, *tensors)
        ctx.rest = spans, template, scale, causal
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, *tensors = ctx.saved_tensors
        spans, template, scale, causal = ctx.rest
        biases, no_gradients = put_tensors(template, tensors), (None,) * (4 + len(tensors))
        if torch.is_grad_enabled():
            return (*_differentiable(q, k, v, g, spans, biases, scale, causal), *no_gradients)
        g, q, k, v = _unit_stride(g), _unit_stride(q), _unit_stride(k), _unit_stride(v)
        if biases is None:
            return (*flash_backward(g, q, k, v, out, lse, causal, scale), *no_gradients)
        dq = torch.empty_like(q) if _covers_all_queries(spans, q.shape[0], q.shape[2]) else torch.zeros_like(q)
        dk, dv = _GradientSum(k), _GradientSum(v)
        for span in spans:
            gradients = _BACKWARD(
                _select(g, span.sample, span.rows),
                _select(q, span.sample, span.rows),
                _select(k, span.sample, span.columns),
                _select(v, span.sample, span.columns),
                _select(out, span.sample, span.rows),
                lse[slice(None) if span.sample is None else slice(span.sample, span.sample + 1), :, span.rows],
                0.0,
                causal,
                attn_mask=biases(span),
                scale=scale,
            )
            dq[slice(None) if span.sample is None else slice(span.sample, span.sample + 1), :, span.rows] = gradients[0]
            dk.add(span, gradients[1])
            dv.add(span, gradients[2])
        return (dq, dk.total(), dv.total(), *no_gradients)


def _covers_all_queries(spans: list[BlockSpan], samples: int, queries: int) -> bool:
    """Whether every query is in a span, so that the output need not be filled first."""
    count = sum((samples if s.sample is None else 1) * (s.rows.stop - s.rows.start) for s in spans)
    return count == samples * queries


class _GradientSum:
    """Sums the gradients of keys or values over spans that may overlap; memory that is written once is not zeroed
    first.
    """

    def __init__(self, like: Tensor) -> None:
        self.gradient = torch.empty_like(like)
        self.written = [False] * like.shape[0]

    def add(self, span: BlockSpan, gradient: Tensor) -> None:
        is_single = span.sample is not None and len(self.written) > 1
        samples = slice(span.sample, span.sample + 1) if is_single and span.sample is not None else slice(None)
        target, index = self.gradient[samples], span.columns
        if all(self.written[samples]) and self.written:
            if isinstance(index, slice):
                target[:, :, index] += gradient
            else:
                target.index_add_(2, index, gradient)
            return
        self.written[samples] = [True] * target.shape[0]
        if isinstance(index, slice):
            target[:, :, : index.start].zero_()
            target[:, :, index.stop :].zero_()
            target[:, :, index] = gradient
        else:
            target.zero_().index_copy_(2, index, gradient)

    def total(self) -> Tensor:
        for n, written in enumerate(self.written):
            if not written:
                self.gradient[n].zero_()
        return self.gradient


def _differentiable(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, spans: list[BlockSpan], biases: Any, scale: float, causal: bool
) -> tuple[Tensor | None, ...]:
    """The first derivative by the plain equation, which can be differentiated again."""
    # separate views: q, k and v may be one tensor, and g may depend on them, but each gradient belongs to one argument
    leaves = [t.view_as(t) for t in (q, k, v)]
    q, k, v = leaves
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    outs, grad_outputs = [(q.sum() + k.sum() + v.sum()) * 0], [torch.ones((), dtype=q.dtype)]
    for span in spans:
        s = (_select(q, span.sample, span.rows) * scale) @ _select(wide_k, span.sample, span.columns).transpose(-1, -2)
        added = None if biases is None else biases(span)
        if causal:
            added = torch.full(s.shape[-2:], -math.inf, dtype=s.dtype).triu(1)
        masked = torch.zeros((), dtype=torch.bool) if added is None else added == -math.inf
        s = s if added is None else (s + added).masked_fill(masked, torch.finfo(s.dtype).min)
        outs.append(torch.softmax(s, -1).masked_fill(masked, 0.0) @ _select(wide_v, span.sample, span.columns))
        grad_outputs.append(_select(g, span.sample, span.rows))
    inputs = [t for t in leaves if t.requires_grad]
    gradients = iter(torch.autograd.grad(outs, inputs, grad_outputs, create_graph=True))
    return tuple(next(gradients) if t.requires_grad else None for t in leaves)
