"""W x + b with an activation or a sum behind it in one pass, without a gradient: by oneDNN, where torch has it.

On a CPU torch's own product of float32 matrices is slower, and the activation and the sum read all numbers once more.
8-bit matrices have a kernel of their own.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.int8_linear import Int8Matrix, int8_linear

Weight = Tensor | Int8Matrix

_ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_REORDER: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)


def has_onednn(x: Tensor) -> bool:
    """Whether oneDNN multiplies matrices such as x."""
    return _ONEDNN is not None and torch.backends.mkldnn.is_available() and x.is_cpu and x.dtype == torch.float32


def pack_weight(weight: Tensor, rows: int) -> Tensor:  # "f d"
    """The weight for the functions below, in the order in which oneDNN reads it for this many rows of x.

    A copy: it is for several products between which the weight does not change. Each would make one of its own.
    """
    weight = weight.detach()
    return _REORDER(weight, rows) if _REORDER is not None and has_onednn(weight) else weight


def linear(x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:  # "n d", "f d", "f" -> "n f"
    """W x + b."""
    if isinstance(weight, Int8Matrix):
        return int8_linear(x, weight, bias)
    return _ONEDNN(x, weight, bias, "none", [], "") if has_onednn(x) else F.linear(x, weight, bias)


def linear_add(x: Tensor, weight: Weight, bias: Tensor, other: Tensor) -> Tensor:  # "n d", "f d", "f", "n f" -> "n f"
    """W x + b + other."""
    if isinstance(weight, Int8Matrix):
        return int8_linear(x, weight, bias, other=other)
    if has_onednn(x):
        return _ONEDNN.binary(x, other, weight, bias, "add")
    return F.linear(x, weight, bias).add_(other)


def linear_gelu(x: Tensor, weight: Weight, bias: Tensor, approximate: str) -> Tensor:  # "n d", "f d", "f" -> "n f"
    """gelu(W x + b), `approximate` as torch's gelu has it."""
    if isinstance(weight, Int8Matrix):
        return int8_linear(x, weight, bias, activation="tanh-gelu" if approximate == "tanh" else "gelu")
    if has_onednn(x):
        return _ONEDNN(x, weight, bias, "gelu", [], approximate)
    return torch.ops.aten.gelu_(F.linear(x, weight, bias), approximate=approximate)
