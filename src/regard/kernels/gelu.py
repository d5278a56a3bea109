"""gelu(x) = x σ(2u), u = √(2/π) (x + 0.044715 x³): the form with tanh  (Hendrycks & Gimpel 2016), in one native pass.

torch computes a tanh per element and pass, which takes about as long as the products of a small feed-forward network.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from regard.kernels.dispatch import can_run_native
from regard.kernels.native_library import call_kernel


def gelu_tanh(x: Tensor) -> Tensor:
    """The same as F.gelu(x, approximate="tanh")."""
    if not can_run_native(x):
        return F.gelu(x, approximate="tanh")
    return _GELUFunction.apply(x) if torch.is_grad_enabled() and x.requires_grad else _run(x, None)


def gelu_tanh_grad_(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of gelu_tanh at x, in the memory of `grad`; both contiguous and such as `can_run_native` takes."""
    call_kernel("regard_gelu", x, x.numel(), x, grad, grad)
    return grad


def _run(x: Tensor, grad: Tensor | None) -> Tensor:
    x = x.contiguous()
    grad = None if grad is None else grad.contiguous()
    out = torch.empty_like(x)
    call_kernel("regard_gelu", x, x.numel(), x, grad, out)
    return out


class _GELUFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _run(x, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        # torch's own gradient can be differentiated again
        if torch.is_grad_enabled() or not can_run_native(x, grad):
            return torch.ops.aten.gelu_backward(grad, x, approximate="tanh")
        return _run(x, grad)
