"""Derivatives of the chain: an autograd Function around compute.py; higher derivatives by the plain form."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.crf import compute
from regard.kernels.crf.plain import Chain, plain_nll
from regard.kernels.dispatch import autocast_disabled


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
        gradients: list[Tensor | None]
        with autocast_disabled(chain.emissions.device):
            if torch.is_grad_enabled():
                needs = [ctx.needs_input_grad[2:][place] for place in (0, 3, 4, 5)]
                needed = [x for x, is_needed in zip(chain.floats, needs, strict=True) if is_needed]
                grads = iter(
                    torch.autograd.grad(plain_nll(*chain), needed, grad, create_graph=True, materialize_grads=True)
                )
                gradients = [next(grads) if is_needed else None for is_needed in needs]
            else:
                gradients = [*compute.backward(chain, messages, grad, ctx.native)]
        return None, None, gradients[0], None, None, *gradients[1:]
