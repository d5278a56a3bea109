"""torch's flash kernel for CPUs, block by block: softmax(scale · q kᵀ + mask) v, with the rows' constants.

The kernel and its backward are called by name because scaled_dot_product_attention gives away neither the rows'
constants nor a way to skip what a mask empties. Where they are missing `available` says no.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan
from regard.attn.terms.mask import Rows

_FORWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def available(t: Tensor) -> bool:
    return t.device.type == "cpu" and _FORWARD is not None and _BACKWARD is not None


def widened(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of one width: the kernel falls to a slow path where they differ. The columns added are zeros."""
    missing = k.shape[-1] - v.shape[-1]
    if missing > 0:
        return q, k, F.pad(v, (0, missing))
    if missing < 0:
        return F.pad(q, (0, -missing)), F.pad(k, (0, -missing)), v
    return q, k, v


def _of(t: Tensor, sample: int | None, index: Rows) -> Tensor:
    """Some positions of one sample, or of all: (b, h, n, w) -> (1 or b, h, m, w)."""
    if sample is not None:
        t = t[sample : sample + 1] if t.shape[0] > 1 else t
    return t[:, :, index]


def _unit(t: Tensor) -> Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


class Flash(torch.autograd.Function):
    """out, lse of (b, h, q, c), (b, g, k, c), (b, g, k, c), span by span; a query in no span sees nothing.

    `biases(span)` gives what is added to the scores of a span, or None; without `biases` the one span is everything.
    Second derivatives are those of the plain equation.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, spans: list[BlockSpan], biases: Any, scale: float, causal: bool
    ) -> tuple[Tensor, Tensor]:
        given = q, k, v  # as they came: a copy made here would have no graph
        q, k, v = _unit(q), _unit(k), _unit(v)
        if biases is None:
            out, lse = _FORWARD(q, k, v, 0.0, causal, scale=scale)
        else:
            b, h, n, _ = q.shape
            out = torch.empty(b, n, h, v.shape[-1], dtype=q.dtype).transpose(1, 2)
            lse = torch.empty(b, n, h, dtype=torch.promote_types(q.dtype, torch.float32)).transpose(1, 2)
            if not _covered(spans, b, n):
                out.zero_()
                lse.fill_(-math.inf)
            for span in spans:
                got = _FORWARD(
                    _of(q, span.sample, span.rows),
                    _of(k, span.sample, span.columns),
                    _of(v, span.sample, span.columns),
                    0.0,
                    causal,
                    attn_mask=biases(span),
                    scale=scale,
                )
                where = slice(None) if span.sample is None else slice(span.sample, span.sample + 1)
                out[where, :, span.rows], lse[where, :, span.rows] = got
        ctx.save_for_backward(*given, out, lse)
        ctx.rest = spans, biases, scale, causal
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        spans, biases, scale, causal = ctx.rest
        if torch.is_grad_enabled():
            return (*_differentiable(q, k, v, g, spans, biases, scale, causal), None, None, None, None)
        g, q, k, v = _unit(g), _unit(q), _unit(k), _unit(v)
        if biases is None:
            return (*_BACKWARD(g, q, k, v, out, lse, 0.0, causal, scale=scale), None, None, None, None)
        dq = torch.empty_like(q) if _covered(spans, q.shape[0], q.shape[2]) else torch.zeros_like(q)
        dk, dv = _Sum(k), _Sum(v)
        for span in spans:
            got = _BACKWARD(
                _of(g, span.sample, span.rows),
                _of(q, span.sample, span.rows),
                _of(k, span.sample, span.columns),
                _of(v, span.sample, span.columns),
                _of(out, span.sample, span.rows),
                lse[slice(None) if span.sample is None else slice(span.sample, span.sample + 1), :, span.rows],
                0.0,
                causal,
                attn_mask=biases(span),
                scale=scale,
            )
            dq[slice(None) if span.sample is None else slice(span.sample, span.sample + 1), :, span.rows] = got[0]
            dk.add(span, got[1])
            dv.add(span, got[2])
        return dq, dk.total(), dv.total(), None, None, None, None


def _covered(spans: list[BlockSpan], samples: int, queries: int) -> bool:
    """Is every query in a span, so that nothing needs to be filled first?"""
    found = sum((samples if s.sample is None else 1) * (s.rows.stop - s.rows.start) for s in spans)
    return found == samples * queries


class _Sum:
    """Gradients of keys or values, gathered from spans that may overlap; what is written once is not filled before."""

    def __init__(self, like: Tensor) -> None:
        self.whole = torch.empty_like(like)
        self.begun = [False] * like.shape[0]

    def add(self, span: BlockSpan, piece: Tensor) -> None:
        one = span.sample is not None and len(self.begun) > 1
        samples = slice(span.sample, span.sample + 1) if one and span.sample is not None else slice(None)
        into, index = self.whole[samples], span.columns
        if all(self.begun[samples]) and self.begun:
            if isinstance(index, slice):
                into[:, :, index] += piece
            else:
                into.index_add_(2, index, piece)
            return
        self.begun[samples] = [True] * into.shape[0]
        if isinstance(index, slice):
            into[:, :, : index.start].zero_()
            into[:, :, index.stop :].zero_()
            into[:, :, index] = piece
        else:
            into.zero_().index_copy_(2, index, piece)

    def total(self) -> Tensor:
        for n, begun in enumerate(self.begun):
            if not begun:
                self.whole[n].zero_()
        return self.whole


def _differentiable(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, spans: list[BlockSpan], biases: Any, scale: float, causal: bool
) -> tuple[Tensor | None, ...]:
    """The first derivative by the plain equation, which has a second."""
    # views of its own: q, k and v may be one tensor, and g may come from them, but each slope goes one way only
    leaves = [t.view_as(t) for t in (q, k, v)]
    q, k, v = leaves
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    outs, slopes = [(q.sum() + k.sum() + v.sum()) * 0], [torch.ones((), dtype=q.dtype)]
    for span in spans:
        s = (_of(q, span.sample, span.rows) * scale) @ _of(wide_k, span.sample, span.columns).transpose(-1, -2)
        added = None if biases is None else biases(span)
        if causal:
            added = torch.full(s.shape[-2:], -math.inf, dtype=s.dtype).triu(1)
        hidden = torch.zeros((), dtype=torch.bool) if added is None else added == -math.inf
        s = s if added is None else (s + added).masked_fill(hidden, torch.finfo(s.dtype).min)
        outs.append(torch.softmax(s, -1).masked_fill(hidden, 0.0) @ _of(wide_v, span.sample, span.columns))
        slopes.append(_of(g, span.sample, span.rows))
    wanted = [t for t in leaves if t.requires_grad]
    found = iter(torch.autograd.grad(outs, wanted, slopes, create_graph=True))
    return tuple(next(found) if t.requires_grad else None for t in leaves)
