"""What custom operators have in common: their declaration, and a gradient that is another operator.

Imported when one of them traces its first call: registration takes milliseconds that `import regard` must not spend.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.kernels.native_library import resolve_native


def operator(name: str, schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """The operator regard::name. Its last argument is `native`, which `compute` gets as whether the call runs native:
    decided by its floating tensors when it runs, not when it is traced. `shapes` returns results without values.
    """

    def run(*arguments: Any) -> Any:
        *inputs, native = arguments
        floats = [t for t in inputs if isinstance(t, Tensor) and t.is_floating_point()]
        return compute(*inputs, resolve_native(native, *floats))

    return declare(name, schema, run, shapes)


def declare(name: str, schema: str, run: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """The operator regard::name, which is `run`. `shapes` returns results without values."""
    declared = torch.library.custom_op(f"regard::{name}", run, mutates_args=(), schema=schema)
    declared.register_fake(shapes)
    return declared


def like_inputs(*places: int) -> Callable[..., tuple[Tensor, ...]]:
    """The shapes of an operator whose results are those of its arguments at these places, for `register_fake`."""
    return lambda *inputs: tuple(inputs[place].new_empty(inputs[place].shape) for place in places)


def register_gradient(
    forward: Any,
    backward: Callable[..., tuple[Any, ...]],
    kept: int,
    outputs: slice,
    places: tuple[int, ...],
    options: int = 1,
) -> None:
    """Makes backward(*its first `kept` arguments, *its `outputs`, *gradients, *its last arguments) the gradient of an
    operator: the gradients of its arguments at `places`. The last arguments, `options` of them, are no tensors.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*inputs[:kept], *results[outputs])
        ctx.options, ctx.count = inputs[len(inputs) - options :], len(inputs)

    def gradient(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [None] * ctx.count
        for place, value in zip(places, backward(*ctx.saved_tensors, *grads, *ctx.options), strict=True):
            gradients[place] = value
        return tuple(gradients)

    forward.register_autograd(gradient, setup_context=save)
