"""Derivatives of higher order of autograd Functions: by the equation in operations of torch, or by no means."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def differentiable_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of function(*inputs), which can be differentiated again; None for an input that needs none.

    `function` is the equation of a kernel in operations of torch.
    """
    # separate views: each gradient belongs to one argument, even if two of them are one tensor
    leaves = [t.view_as(t) for t in inputs]
    needed = [t for t in leaves if t.requires_grad]
    gradients = iter(torch.autograd.grad(function(*leaves), needed, grad, create_graph=True, materialize_grads=True))
    return tuple(next(gradients) if t.requires_grad else None for t in leaves)


def no_double_backward(subject: str, instead: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of a `backward` without a second derivative, which raises if it is to be differentiated again;
    `instead` is the way out.

    torch's own once_differentiable silently leaves terms out where the tensor to differentiate does not lie behind it.
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def checked(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():
                raise RuntimeError(
                    f"{subject} no second derivative here, which create_graph=True asks for; leave it out, or {instead}"
                )
            return backward(ctx, *grads)

        return checked

    return decorate


no_recurrent_double_backward = no_double_backward("recurrent layers have", "build the model of nn.GRU and nn.LSTM")


def zero_gradients(*tensors: Tensor | None) -> list[Tensor | None]:
    """The gradients of tensors that decide nothing: zeros with a graph; None for a tensor that needs none."""
    return [
        t.masked_fill(t.new_ones((), dtype=torch.bool), 0.0) if t is not None and t.requires_grad else None
        for t in tensors
    ]
