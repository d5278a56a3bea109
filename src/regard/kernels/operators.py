"""What custom operators have in common: shapes without values, and a gradient that is another operator."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def like_inputs(*places: int) -> Callable[..., tuple[Tensor, ...]]:
    """The shapes of an operator whose results are those of its arguments at these places, for `register_fake`."""
    return lambda *inputs: tuple(inputs[place].new_empty(inputs[place].shape) for place in places)


def register_gradient(
    operator: Any, backward: Callable[..., tuple[Any, ...]], kept: int, outputs: slice, places: tuple[int, ...]
) -> None:
    """Makes backward(*its first `kept` arguments, *its `outputs`, *gradients, its last argument) the gradient of an
    operator: the gradients of its arguments at `places`. The last argument is no tensor.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*inputs[:kept], *results[outputs])
        ctx.last, ctx.count = inputs[-1], len(inputs)

    def gradient(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [None] * ctx.count
        for place, value in zip(places, backward(*ctx.saved_tensors, *grads, ctx.last), strict=True):
            gradients[place] = value
        return tuple(gradients)

    operator.register_autograd(gradient, setup_context=save)
