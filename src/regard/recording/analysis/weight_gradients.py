"""The gradient of the loss with respect to the weights of a map, from the gradient of the output and the values."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.kernels.dispatch import autocast_disabled
from regard.recording.analysis.derived_maps import IndexedMap
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
        self, output_gradient: OutputGradient, as_rows: Callable[[Tensor], Tensor], v: Tensor, shape: tuple[int, ...]
    ) -> None:
        self._output_gradient, self._as_rows, self._v, self._shape = output_gradient, as_rows, v, shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def device(self) -> torch.device:
        return self._v.device

    def _output_rows(self) -> Tensor:  # -> "*b q v"
        grad = self._as_rows(self._output_gradient.get())
        return grad.to(torch.promote_types(grad.dtype, torch.float32))

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        grad = self._output_rows()
        values = repeat_heads(self._v, grad).to(grad.dtype)
        with autocast_disabled(self.device):
            grad, values = (t.expand(*self._shape[:-2], *t.shape[-2:]) for t in (grad, values))
            return grad[..., rows, :] @ values.mT

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return IndexedMap(self, index)


class GateGradient(WeightGradient):
    """∂L/∂P = ∂L/∂out ∘ V of a gate, summed where one weight serves several values."""

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        grad = self._output_rows()
        return (grad * self._v.to(grad.dtype)).sum_to_size(*self._shape)[..., rows, :]
