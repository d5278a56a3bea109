"""A matrix that a loop multiplies by again and again, whose gradient is one product at the end."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.dispatch import is_autocasting
from regard.kernels.no_double_backward import no_double_backward

# what came into each product, and the gradient of what came out of it; of every backward pass its own, by number: one
# that does not go as far as the matrix, as it asks for other gradients, or fails, leaves some behind
_Pairs = dict[int, list[tuple[Tensor, Tensor]]]


class _Gather(torch.autograd.Function):
    """The matrix and its bias themselves; their backward comes after those of all products, and joins the pairs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, pairs: _Pairs) -> Any:
        ctx.set_materialize_grads(False)
        ctx.pairs = pairs
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, *elsewhere: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = ctx.pairs.pop(torch._C._current_graph_task_id(), None)
        if pairs is None:
            return *elsewhere, None
        came, went = (torch.cat(side) for side in zip(*pairs, strict=True))
        made = went.T @ came, went.sum(0) if ctx.needs_input_grad[1] else None
        both = [
            more if here is None else here if more is None else here + more
            for here, more in zip(made, elsewhere, strict=True)
        ]
        return *both, None


class _Product(torch.autograd.Function):
    """x Wᵀ + b, or x Wᵀ + y, whose backward leaves the share of W and b for later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, plus: Tensor | None, pairs: _Pairs) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.pairs = pairs
        return F.linear(x, weight, bias) if plus is None else torch.addmm(plus, x, weight.T)

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, went: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.pairs.setdefault(torch._C._current_graph_task_id(), []).append((x, went))
        to_x, to_plus = ctx.needs_input_grad[0], ctx.needs_input_grad[3]
        return went @ weight if to_x else None, None, None, went if to_plus else None, None


class DeferredGradLinear:
    """x -> x Wᵀ + b for many x, "b e" each: Σ_t g_tᵀ x_t is one product of all steps, made when all have come back.

    Fits a loop whose steps depend on one another, where autograd would multiply and add a whole matrix a step. No
    second derivative.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:  # "d e", "d"
        self.pairs: _Pairs = {}
        self.late = torch.is_grad_enabled() and weight.requires_grad and not torch.compiler.is_compiling()
        if self.late and is_autocasting(weight) and weight.dtype == torch.float32:
            # once for all steps; and a backward pass, which has no autocast, meets one type
            narrow = torch.get_autocast_dtype(weight.device.type)
            weight, bias = weight.to(narrow), None if bias is None else bias.to(narrow)
        self.weight: Tensor
        self.bias: Tensor | None
        self.weight, self.bias = _Gather.apply(weight, bias, self.pairs) if self.late else (weight, bias)

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:  # "b e" -> "b d"
        """x Wᵀ + b, or x Wᵀ + `plus` where there is no b."""
        assert plus is None or self.bias is None
        if self.late:
            x, plus = x.to(self.weight.dtype), None if plus is None else plus.to(self.weight.dtype)
            return _Product.apply(x, self.weight, self.bias, plus, self.pairs)
        return F.linear(x, self.weight, self.bias) if plus is None else torch.addmm(plus, x, self.weight.T)
