"""Derivatives of the additive kernels: autograd Functions around compute.py, and the equation in plain operations.

A first derivative runs the kernels; a derivative of a higher order runs the plain operations, which torch
differentiates itself.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.additive import compute
from regard.kernels.dispatch import autocast_disabled


def plain_scores(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The equation as written; pairs that are not allowed score w . tanh 0 = 0 and have no gradient."""
    x = a.unsqueeze(-2) + b.unsqueeze(-3)  # n q k d
    if allowed is not None:
        x = torch.where(allowed.unsqueeze(-1), x, 0)
    return x.tanh_() @ w


def plain_weights(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, guard: bool = True) -> tuple[Tensor, Tensor]:
    """softmax of the equation as written. `guard` keeps NaN and inf of forbidden keys out of the gradients."""
    x = plain_scores(a, b, w, allowed if guard else None)
    if allowed is None:
        return x.softmax(-1), x.logsumexp(-1)
    empty = ~allowed.any(-1, keepdim=True)
    # an empty row is computed as if all keys were allowed and then zeroed, so no inf - inf is differentiated
    x = x.masked_fill(~(allowed | empty), -torch.inf)
    return x.softmax(-1).masked_fill(empty, 0), x.logsumexp(-1).masked_fill(empty.squeeze(-1), -torch.inf)


def _plain_scores_backward(a: Tensor, b: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the scores in differentiable operations, for derivatives of a higher order."""
    x = a.unsqueeze(-2) + b.unsqueeze(-3)  # n q k d
    t = torch.where((grad == 0).unsqueeze(-1) & ~x.isfinite(), 0, x).tanh()
    slope = grad.unsqueeze(-1) * (1 - t * t) * w
    return slope.sum(-2), slope.sum(-3), (grad.unsqueeze(-1) * t).sum((0, 1, 2))


class ScoresFunction(Function):
    """sum_d w_d tanh(a_id + b_jd): "n q d", "n k d", "d" -> "n q k"."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, w: Tensor, native: bool) -> Tensor:
        ctx.save_for_backward(a, b, w)
        ctx.native = native
        return compute.scores_forward(a, b, w, native)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, w = ctx.saved_tensors
        with autocast_disabled(a.device):
            if torch.is_grad_enabled():
                return *_plain_scores_backward(a, b, w, grad), None
            return *compute.scores_backward(a, b, w, grad, ctx.native), None


class WeightsFunction(Function):
    """softmax of the scores over the allowed keys, and its log sum of exponentials. Keeps the weights."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, native: bool
    ) -> tuple[Tensor, Tensor]:
        out, lse = compute.weights_forward(a, b, w, allowed, native)
        ctx.save_for_backward(a, b, w, out)
        ctx.native = native
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        a, b, w, out = ctx.saved_tensors
        if grad is None and grad_lse is None:
            return None, None, None, None, None
        with autocast_disabled(a.device):
            if torch.is_grad_enabled():
                # `out` is this function's own output, so the formula below is differentiable through it
                inner = torch.zeros_like(out) if grad is None else torch.where(out == 0, 0, grad)
                inner = inner - (out * inner).sum(-1, keepdim=True)
                if grad_lse is not None:
                    inner = inner + grad_lse.unsqueeze(-1)
                return *_plain_scores_backward(a, b, w, out * inner), None, None
            return *compute.weights_backward(a, b, w, out, grad, grad_lse, ctx.native), None, None


class AttendFunction(Function):
    """softmax(scores) @ v and the log sum of exponentials. The backward pass computes the weights again."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None, native: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(a, b, w, v, allowed)
        ctx.native = native
        ctx.set_materialize_grads(False)
        return compute.attend_forward(a, b, w, v, allowed, native)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        a, b, w, v, allowed = ctx.saved_tensors
        if grad is None and grad_lse is None:
            return None, None, None, None, None, None
        with autocast_disabled(a.device):
            if not torch.is_grad_enabled():
                return *compute.attend_backward(a, b, w, v, allowed, grad, grad_lse, ctx.native), None, None
            weights, lse = WeightsFunction.apply(a, b, w, allowed, ctx.native)
            pairs = [(compute.mix(weights, v, allowed), grad), (lse, grad_lse)]
            outputs, grads = zip(*[pair for pair in pairs if pair[1] is not None], strict=True)
            gradients = torch.autograd.grad(outputs, (a, b, w, v), grads, create_graph=True, allow_unused=True)
            return *gradients, None, None
