"""Derivatives of the chain: an autograd Function around compute.py; higher derivatives by the plain form."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.crf import compute
from regard.kernels.crf.plain import plain_nll
from regard.kernels.dispatch import autocast_disabled


class NllFunction(Function):
    """log Z − score(tags): "b t k", "b t", "b t", "k k", "k", "k" -> "b"."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        tags: Tensor | None,
        mask: Tensor | None,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        native: bool,
        need_grad: bool,
    ) -> Tensor:
        with autocast_disabled(emissions.device):
            out, messages = compute.forward(emissions, tags, mask, transitions, start, end, native, need_grad)
        if need_grad:
            ctx.save_for_backward(emissions, tags, mask, transitions, start, end, *messages)
            ctx.native = native
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        emissions, tags, mask, transitions, start, end, *messages = ctx.saved_tensors
        with autocast_disabled(emissions.device):
            if torch.is_grad_enabled():
                inputs = (emissions, transitions, start, end)
                needed = [x for x, needs in zip(inputs, _of_floats(ctx.needs_input_grad), strict=True) if needs]
                out = plain_nll(emissions, tags, mask, transitions, start, end)
                grads = iter(torch.autograd.grad(out, needed, grad, create_graph=True, materialize_grads=True))
                gradients = [next(grads) if needs else None for needs in _of_floats(ctx.needs_input_grad)]
            else:
                chain = (emissions, tags, mask, transitions, start, end, compute.Messages(*messages))
                gradients = list(compute.backward(*chain, grad, ctx.native))
        return gradients[0], None, None, *gradients[1:], None, None


def _of_floats(needs: tuple[bool, ...]) -> tuple[bool, ...]:
    return (needs[0], *needs[3:6])
