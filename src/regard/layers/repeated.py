"""A matrix that a loop multiplies by again and again, whose gradient is one product at the end."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.parts.call import autocasting

# what came into each product, and the gradient of what came out of it; of every backward pass its own, by number: one
# that does not go as far as the matrix, as it asks for other gradients, or fails, leaves some behind
_Pairs = dict[int, list[tuple[Tensor, Tensor]]]


class _Gather(torch.autograd.Function):
    """The matrix itself; its backward comes after those of all products, and puts their pairs together."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pairs: _Pairs) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.pairs = pairs
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, elsewhere: Tensor | None) -> tuple[Tensor | None, None]:
        pairs = ctx.pairs.pop(torch._C._current_graph_task_id(), None)
        if pairs is None:
            return elsewhere, None
        came, went = (torch.cat(side) for side in zip(*pairs, strict=True))
        gradient = went.T @ came
        return gradient if elsewhere is None else gradient + elsewhere, None


class _Product(torch.autograd.Function):
    """x Wᵀ, whose backward leaves W's share for later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, pairs: _Pairs) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.pairs = pairs
        return F.linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, went: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.pairs.setdefault(torch._C._current_graph_task_id(), []).append((x, went))
        return went @ weight if ctx.needs_input_grad[0] else None, None, None


class Repeated:
    """x -> x Wᵀ for many x, "b e" each: Σ_t g_tᵀ x_t is computed as one product of all steps, when all have come back.

    Fits a loop whose steps depend on one another, where autograd would multiply and add a whole matrix a step. No
    second derivative.
    """

    def __init__(self, weight: Tensor) -> None:  # "d e"
        self.pairs: _Pairs = {}
        self.late = torch.is_grad_enabled() and weight.requires_grad and not torch.compiler.is_compiling()
        if self.late and autocasting(weight) and weight.dtype == torch.float32:
            # once for all steps; and a backward pass, which has no autocast, meets one type
            weight = weight.to(torch.get_autocast_dtype(weight.device.type))
        self.weight = _Gather.apply(weight, self.pairs) if self.late else weight

    def __call__(self, x: Tensor) -> Tensor:  # "b e" -> "b d"
        return (
            _Product.apply(x.to(self.weight.dtype), self.weight, self.pairs) if self.late else F.linear(x, self.weight)
        )
