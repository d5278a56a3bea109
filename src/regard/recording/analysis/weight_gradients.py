"""The gradient of the loss by the weights of a map, from the gradient of the output and the values."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.kernels.dispatch import autocast_disabled
from regard.recording.capture.certificate import repeat_heads


class OutputGradient:
    """The gradient of an output, after the backward pass; the last one, if there were several passes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.grad: Tensor | None = None

    def receive(self, grad: Tensor) -> None:
        self.grad = grad.detach().clone()

    def get(self) -> Tensor:
        if self.grad is None:
            raise RuntimeError(
                f"the gradient of {self.name!r} is known after a backward pass, and none has reached it; "
                "call backward() on a loss of the output that the model gave while it was recorded"
            )
        return self.grad


class WeightGradient(AttentionMap):
    """∂L/∂P = ∂L/∂out · Vᵀ, from the output's gradient and the values: linear memory, and no eager attention.

    With dropout, P is the weights after it.
    """

    def __init__(
        self,
        output_gradient: OutputGradient,
        as_rows: Callable[[Tensor], Tensor],
        v: Tensor,
        shape: tuple[int, ...],
        index: tuple[int | slice, ...] = (),
    ) -> None:
        self._output_gradient, self._as_rows, self._v = output_gradient, as_rows, v
        self._full_shape, self._index = shape, index

    @property
    def shape(self) -> tuple[int, ...]:
        lead = torch.empty(self._full_shape[:-2], device="meta")[self._index]
        return (*lead.shape, *self._full_shape[-2:])

    @property
    def device(self) -> torch.device:
        return self._v.device

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        grad = self._as_rows(self._output_gradient.get())
        grad = grad.to(torch.promote_types(grad.dtype, torch.float32))
        values = repeat_heads(self._v, grad).to(grad.dtype)
        with autocast_disabled(self.device):
            grad, values = (t.expand(*self._full_shape[:-2], *t.shape[-2:])[self._index] for t in (grad, values))
            return grad[..., rows, :] @ values.transpose(-1, -2)

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        combined = [*self._index, *[slice(None)] * (len(self._full_shape) - 2 - len(self._index))]
        axes = [
            (axis, range(self._full_shape[axis])[item]) for axis, item in enumerate(combined) if isinstance(item, slice)
        ]
        for (axis, numbers), item in zip(axes, index, strict=False):
            n = numbers[item]
            combined[axis] = slice(n.start, n.stop, n.step) if isinstance(n, range) else n
        return type(self)(self._output_gradient, self._as_rows, self._v, self._full_shape, tuple(combined))


class GateGradient(WeightGradient):
    """∂L/∂P = ∂L/∂out ∘ V of a gate, summed where one weight serves several values."""

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        grad = self._as_rows(self._output_gradient.get())
        grad = grad.to(torch.promote_types(grad.dtype, torch.float32))
        gradient = (grad * self._v.to(grad.dtype)).sum_to_size(*self._full_shape)
        return gradient[self._index][..., rows, :]
