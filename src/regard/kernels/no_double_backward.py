"""A decorator for autograd Functions without a second derivative: create_graph=True raises instead of being wrong."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def no_double_backward(subject: str, instead: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the `backward` of an autograd Function raise if it is to be differentiated again; `instead` is the way out.

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
