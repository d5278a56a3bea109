"""Dropout in one native pass, whose draws follow from a seed: the way back draws them again, and no mask is kept."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.dispatch import route
from regard.kernels.native_library import call, refusal

# probabilities are cut to multiples of 1/2¹⁶
STEPS = 1 << 16


def native(x: Tensor) -> bool:
    """Does the native kernel take this?"""
    return route(x) == "direct" and x.numel() > 0 and refusal(x) is None


def drop(x: Tensor, least: int) -> Tensor:
    """x ∘ m / (1 − p), m ~ Bernoulli(1 − p), p = least / 2¹⁶; torch's generator gives the seed."""
    seed = int(torch.empty(1, dtype=torch.int64, device=x.device).random_(-(1 << 63), None))
    return _Drop.apply(x, seed, least)


class _Drop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, least: int) -> Tensor:
        ctx.drawn = seed, least
        x = x.contiguous()
        out = torch.empty_like(x)
        call("regard_drop", x, x.numel(), x.data_ptr(), seed, least, STEPS / (STEPS - least), out.data_ptr())
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Drop.apply(grad, *ctx.drawn), None, None
