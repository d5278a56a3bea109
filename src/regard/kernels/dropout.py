"""Dropout in one native pass. The mask follows from a seed: the backward pass computes it again, and none is kept."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.native_library import call_kernel

# probabilities are rounded to multiples of 1/2¹⁶
PROBABILITY_STEPS = 1 << 16


def native_dropout(x: Tensor, threshold: int) -> Tensor:
    """x ∘ m / (1 − p), m ~ Bernoulli(1 − p), p = threshold / 2¹⁶; torch's generator gives the seed.

    Only for tensors of which `dispatch.can_run_native` is true.
    """
    seed = int(torch.empty(1, dtype=torch.int64, device=x.device).random_(-(1 << 63), None))
    return _DropoutFunction.apply(x, seed, threshold)


class _DropoutFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, threshold: int) -> Tensor:
        ctx.seed_and_threshold = seed, threshold
        x = x.contiguous()
        out = torch.empty_like(x)
        scale = PROBABILITY_STEPS / (PROBABILITY_STEPS - threshold)
        call_kernel("regard_drop", x, x.numel(), x, seed, threshold, scale, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _DropoutFunction.apply(grad, *ctx.seed_and_threshold), None, None
