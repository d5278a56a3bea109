"""Derivatives of the chain: an autograd Function around compute.py; higher derivatives by the plain form."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.crf import compute
from regard.kernels.crf.plain import Chain, plain_nll
from regard.kernels.dispatch import autocast_disabled
from regard.kernels.second_derivatives import differentiable_gradients


class NllFunction(Function):
    """log Z − score(tags) of the tensors of a Chain -> "b"."""

    @staticmethod
    def forward(ctx: Any, native: bool, need_grad: bool, *inputs: Tensor | None) -> Tensor:
        chain = Chain(*inputs)  # type: ignore[arg-type]
        with autocast_disabled(chain.emissions.device):
            out, messages = compute.forward(chain, native, need_grad)
        if need_grad:
            ctx.save_for_backward(*chain, *messages)
            ctx.native = native
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        chain, messages = Chain(*ctx.saved_tensors[:6]), compute.Messages(*ctx.saved_tensors[6:])
        with autocast_disabled(chain.emissions.device):
            if torch.is_grad_enabled():
                of_emissions, *of_potentials = differentiable_gradients(
                    lambda emissions, *potentials: plain_nll(emissions, chain.tags, chain.mask, *potentials),
                    chain.floats,
                    grad,
                )
            else:
                of_emissions, *of_potentials = compute.backward(chain, messages, grad, ctx.native)
        return None, None, of_emissions, None, None, *of_potentials
