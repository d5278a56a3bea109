"""W₂ gelu(W₁ x + b₁) + b₂ with its gradient in one function, which keeps W₁ x + b₁ alone.

gelu is computed again in the backward pass, and its gradient is written over that of its output: less memory is
written and read than by one function per product, which takes longer than the native gelu itself.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from regard.kernels.dispatch import can_run_native, is_autocasting
from regard.kernels.gelu import gelu_tanh, gelu_tanh_grad_
from regard.kernels.second_derivatives import differentiable_gradients


def can_fuse_feed_forward(x: Tensor, *parameters: Tensor) -> bool:
    """Whether `gelu_feed_forward` can take these tensors, and has a gradient to compute."""
    if not torch.is_grad_enabled() or is_autocasting(x):
        return False
    needs_grad = x.requires_grad or any(parameter.requires_grad for parameter in parameters)
    return needs_grad and can_run_native(x, *parameters)


def gelu_feed_forward(
    x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor
) -> Tensor:  # "*b d", "f d", "f", "e f", "e" -> "*b e"
    """W₂ gelu(W₁ x + b₁) + b₂, gelu in its form with tanh; only where `can_fuse_feed_forward`."""
    out: Tensor = _FeedForwardFunction.apply(x, inner, inner_bias, outer, outer_bias)
    return out


class _FeedForwardFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor) -> Tensor:
        hidden = F.linear(x, inner, inner_bias)
        ctx.save_for_backward(x, inner, inner_bias, outer, outer_bias, hidden)
        return F.linear(gelu_tanh(hidden), outer, outer_bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, hidden = ctx.saved_tensors
        if torch.is_grad_enabled():
            return differentiable_gradients(_equation, inputs, grad)
        x, inner, _, outer, _ = inputs
        needed = ctx.needs_input_grad
        rows, hidden, grad = (t.reshape(-1, t.shape[-1]) for t in (x, hidden, grad))
        outer_grad = grad.t() @ gelu_tanh(hidden) if needed[3] else None
        outer_bias_grad = grad.sum(0) if needed[4] else None
        if not any(needed[:3]):
            return None, None, None, outer_grad, outer_bias_grad
        hidden_grad = gelu_tanh_grad_(grad @ outer, hidden)
        x_grad = (hidden_grad @ inner).view(x.shape) if needed[0] else None
        inner_grad = hidden_grad.t() @ rows if needed[1] else None
        return x_grad, inner_grad, hidden_grad.sum(0) if needed[2] else None, outer_grad, outer_bias_grad


def _equation(x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, inner, inner_bias), approximate="tanh"), outer, outer_bias)
