"""DeferredGradLinear: a linear map used in every step of a loop, whose weight gradient is one product at the end."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.dispatch import is_autocasting
from regard.kernels.second_derivatives import no_recurrent_double_backward

# inputs of the products and gradients of their outputs, per backward pass, by its number: a pass that does not reach
# the matrix, because it computes other gradients or fails, leaves some behind
_Pairs = dict[int, list[tuple[Tensor, Tensor]]]


class _Gather(torch.autograd.Function):
    """Passes the matrix and its bias through; its backward runs after those of all products and combines the pairs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, pairs: _Pairs) -> Any:
        ctx.set_materialize_grads(False)
        ctx.pairs = pairs
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    @no_recurrent_double_backward
    def backward(ctx: Any, *other_gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = ctx.pairs.pop(torch._C._current_graph_task_id(), None)
        if pairs is None:
            return *other_gradients, None
        inputs, gradients = (torch.cat(side) for side in zip(*pairs, strict=True))
        deferred = gradients.T @ inputs, gradients.sum(0) if ctx.needs_input_grad[1] else None
        totals = [
            other if gradient is None else gradient if other is None else gradient + other
            for gradient, other in zip(deferred, other_gradients, strict=True)
        ]
        return *totals, None


class _DeferredGradProduct(torch.autograd.Function):
    """x Wᵀ + b, or x Wᵀ + y, whose backward defers the gradient of W and b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, plus: Tensor | None, pairs: _Pairs) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.pairs = pairs
        return F.linear(x, weight, bias) if plus is None else torch.addmm(plus, x, weight.T)

    @staticmethod
    @no_recurrent_double_backward
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.pairs.setdefault(torch._C._current_graph_task_id(), []).append((x, gradient))
        needs_x, needs_plus = ctx.needs_input_grad[0], ctx.needs_input_grad[3]
        return gradient @ weight if needs_x else None, None, None, gradient if needs_plus else None, None


class DeferredGradLinear:
    """x -> x Wᵀ + b for many x, "b e" each: Σ_t g_tᵀ x_t is one product over all steps, computed after all their
    backwards.

    For a loop whose steps depend on each other, in which autograd would multiply and add a whole matrix per step. No
    second derivative.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:  # "d e", "d"
        self.pairs: _Pairs = {}
        self.is_deferred = torch.is_grad_enabled() and weight.requires_grad and not torch.compiler.is_compiling()
        if self.is_deferred and is_autocasting(weight) and weight.dtype == torch.float32:
            # cast once for all steps; and the backward pass, which has no autocast, sees one dtype
            dtype = torch.get_autocast_dtype(weight.device.type)
            weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        self.weight: Tensor
        self.bias: Tensor | None
        self.weight, self.bias = _Gather.apply(weight, bias, self.pairs) if self.is_deferred else (weight, bias)

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:  # "b e" -> "b d"
        """x Wᵀ + b, or x Wᵀ + `plus` without b."""
        assert plus is None or self.bias is None
        if self.is_deferred:
            x, plus = x.to(self.weight.dtype), None if plus is None else plus.to(self.weight.dtype)
            return _DeferredGradProduct.apply(x, self.weight, self.bias, plus, self.pairs)
        return F.linear(x, self.weight, self.bias) if plus is None else torch.addmm(plus, x, self.weight.T)
