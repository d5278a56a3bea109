"""Functions with one derivative: a second, asked for by create_graph=True, is an error and never a wrong number."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For the backward of an autograd Function.  torch's own once_differentiable leaves terms out in silence where
    what is asked for does not lie behind it."""

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "recurrent layers have no second derivative here, which create_graph=True asks for; "
                "leave it out, or build the model of nn.GRU and nn.LSTM"
            )
        return backward(ctx, *grads)

    return checked
