"""W x + b with 8-bit weights: one scale per output, and activations that are quantised row by row or stay as they are.

w = scale · n, n from −127 to 127; a row of x is rounded in the same way. The products are sums of integers, so they are
the same on every instruction set and whatever the other rows of a batch are. There is no gradient. The native form runs
float32 on the CPU; elsewhere the same integers are multiplied by torch.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.dispatch import choose_route
from regard.kernels.native_library import call_kernel, unavailable_reason

# outputs per panel and features per quad, as csrc/int8_tiles.h reads them
PANEL, QUAD = 16, 4
_ZERO = 128  # the byte of weight 0
_MOST = 127
# products of 8 bits that float32 adds without rounding: 127² · 1024 < 2²⁴
_EXACT = 1024
# 127² features fit into the 32 bits of a sum, and 128 · 127 into that of the shift
_MOST_FEATURES = 100_000
ACTIVATIONS = ("none", "relu", "gelu", "tanh-gelu")


@dataclass(frozen=True, eq=False)
class Int8Matrix:
    """A matrix (f, d) of 8-bit weights in panels of 16 rows and quads of 4 columns; padding has weight 0."""

    packed: Tensor  # uint8 "p q 16 4", the weights plus 128
    scale: Tensor  # "f"
    features: int  # d
    is_float: bool = False  # activations stay as they are, instead of being quantised row by row

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.scale), self.features

    def __len__(self) -> int:
        return len(self.scale)

    def integers(self) -> Tensor:  # int8 "f d"
        """The weights without their scales."""
        rows = self.packed.transpose(1, 2).flatten(2).flatten(0, 1)
        return (rows[: len(self), : self.features].to(torch.int16) - _ZERO).to(torch.int8)

    def rows(self, index: Tensor) -> Tensor:  # "*b" -> "*b d"
        """These rows in the dtype of the scales, as an embedding looks them up."""
        # refuses indices below 0 as well, which would count from the last row
        scale = F.embedding(index, self.scale.unsqueeze(-1))  # "*b 1"
        # a quad at a time, as one number of 32 bits
        quads = self.packed.view(torch.int32).squeeze(-1)[index // PANEL, :, index % PANEL]  # "*b q"
        bytes_ = quads.view(torch.uint8)[..., : self.features]
        return (bytes_.to(self.scale.dtype) - _ZERO).mul_(scale)

    def dequantize(self) -> Tensor:  # "f d"
        return self.integers().to(self.scale.dtype) * self.scale.unsqueeze(-1)


def quantize_matrix(weight: Tensor, is_float: bool = False) -> Int8Matrix:  # "f d"
    """The nearest 8-bit matrix whose largest number per row is exact."""
    if weight.ndim != 2 or not weight.is_floating_point():
        raise ValueError(
            f"weight must be a matrix of floats, got {weight.dtype} {tuple(weight.shape)}; quantise that of a Linear"
        )
    f, d = weight.shape
    if d > _MOST_FEATURES:
        raise ValueError(f"weight has {d} features, and 32 bits hold sums of {_MOST_FEATURES}; keep it in float32")
    weight = weight.detach().float()
    if not bool(weight.isfinite().all()):
        raise ValueError("weight has NaN or infinity, which 8 bits cannot hold; look for it in the checkpoint")
    scale = weight.abs().amax(1) / _MOST if d else weight.new_zeros(f)
    # a row of zeros, or of numbers too small for a scale, is zero
    scale = torch.where(scale < 1e-30, torch.zeros_like(scale), scale)
    divided = weight / torch.where(scale > 0, scale, torch.ones_like(scale)).unsqueeze(-1)
    rounded = torch.where(scale.unsqueeze(-1) > 0, divided.round().clamp(-_MOST, _MOST), torch.zeros_like(divided))
    bytes_ = torch.full((f + -f % PANEL, d + -d % QUAD), _ZERO, dtype=torch.uint8, device=weight.device)
    bytes_[:f, :d] = rounded + _ZERO
    packed = bytes_.view(len(bytes_) // PANEL, PANEL, bytes_.shape[1] // QUAD, QUAD).transpose(1, 2).contiguous()
    return Int8Matrix(packed, scale, d, is_float)


def native_reason(x: Tensor, matrix: Int8Matrix, *others: Tensor | None) -> str | None:
    """Why the native kernel does not multiply these and add the others, in one sentence; None if it does."""
    for tensor in (x, matrix.scale, *others):
        if tensor is not None and tensor.device.type != "cpu":
            return f"the native kernels run on the cpu, not on {tensor.device}"
        if tensor is not None and tensor.dtype != torch.float32:
            return f"8-bit products are native for float32, not for {tensor.dtype}"
    if not matrix.packed.is_cpu or not matrix.packed.is_contiguous() or not matrix.scale.is_contiguous():
        return "8-bit weights must lie on the cpu in one piece"
    return unavailable_reason()


def is_native(x: Tensor, matrix: Int8Matrix, *others: Tensor | None) -> bool:
    """Whether the native kernel multiplies these and adds the others now."""
    return choose_route(x, matrix.packed) == "direct" and native_reason(x, matrix, *others) is None


def int8_linear(
    x: Tensor,
    matrix: Int8Matrix,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    other: Tensor | None = None,
    native: bool | None = None,
) -> Tensor:  # "*b d", "f", other "*b f" -> "*b f"
    """activation(W x + b), or W x + b + other.

    A row of x with NaN or infinity gives a row of NaN where activations are quantised.
    """
    _check(x, matrix, bias, activation, other)
    if native is False or not is_native(x, matrix, bias, other):
        if native:
            reason = native_reason(x, matrix, bias, other) or "torch compiles, traces or transforms"
            raise RuntimeError(f"native=True is not possible: {reason}; native=None falls back to torch")
        return _activate(_linear_by_torch(x, matrix, bias), activation, other)
    x, rows = x.contiguous(), x.shape[:-1].numel()
    out = x.new_empty(*x.shape[:-1], len(matrix))
    if not out.numel():
        return out
    bias = None if bias is None else bias.contiguous()
    other = None if other is None else other.contiguous()
    call_kernel(
        "regard_int8_linear",
        x,
        *(rows, len(matrix), matrix.features, matrix.is_float, ACTIVATIONS.index(activation)),
        *(x, matrix.packed, matrix.scale, bias, other, out),
    )
    return out


def _check(x: Tensor, matrix: Int8Matrix, bias: Tensor | None, activation: str, other: Tensor | None) -> None:
    if x.shape[-1:] != (matrix.features,):
        raise ValueError(
            f"x must have {matrix.features} features for a matrix {matrix.shape}, got {tuple(x.shape)}; "
            "pass the input that the layer was built for"
        )
    if bias is not None and tuple(bias.shape) != (len(matrix),):
        raise ValueError(
            f"bias must have one number per output, ({len(matrix)},), got {tuple(bias.shape)}; pass that of the layer"
        )
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if other is None:
        return
    if activation != "none":
        raise ValueError(f"activation {activation!r} and other exclude each other; add other to the result")
    if other.shape != (*x.shape[:-1], len(matrix)):
        raise ValueError(
            f"other must have the shape of the result, {(*x.shape[:-1], len(matrix))}, got {tuple(other.shape)}; "
            "expand it"
        )


def int8_sums(x: Tensor, matrix: Int8Matrix) -> Tensor:  # int8 "n d" -> int32 "n f"
    """Σ w x in integers, by the native library: the sums that all products are made of."""
    x = x.contiguous()
    out = x.new_empty(len(x), len(matrix), dtype=torch.int32)
    sizes = (len(x), len(matrix), matrix.features)
    call_kernel("regard_int8_sums", x, *sizes, x, matrix.packed, out)
    return out


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:  # "*b d" -> float "*b d", "*b 1"
    """Integers and the scale of every row; a row with NaN or infinity is 0 with the scale NaN."""
    x = x.float()
    largest = x.abs().amax(-1, keepdim=True) if x.shape[-1] else x.new_zeros(*x.shape[:-1], 1)
    is_usable = (largest >= 1e-30) & largest.isfinite()
    integers = torch.where(
        is_usable, x * (_MOST / torch.where(is_usable, largest, torch.ones_like(largest))), 0.0
    ).round()
    scale = torch.where(largest.isfinite(), torch.where(is_usable, largest / _MOST, 0.0), torch.nan)
    return integers, scale


def _linear_by_torch(x: Tensor, matrix: Int8Matrix, bias: Tensor | None) -> Tensor:
    """The same by torch: the integers are floats, which blocks of features add without rounding."""
    if matrix.is_float:
        return F.linear(x, matrix.dequantize().to(x.dtype), None if bias is None else bias.to(x.dtype))
    (integers, scale), weight = quantize_rows(x), matrix.integers().float()
    sums = torch.zeros(*x.shape[:-1], len(matrix), dtype=torch.int32, device=x.device)
    for start in range(0, matrix.features, _EXACT):
        block = slice(start, start + _EXACT)
        sums += (integers[..., block] @ weight[:, block].T).to(torch.int32)
    out = sums.float() * (scale * matrix.scale.float())
    return (out if bias is None else out + bias.float()).to(x.dtype)


def _activate(y: Tensor, activation: str, other: Tensor | None) -> Tensor:
    if activation == "relu":
        y = y.relu()
    elif activation != "none":
        y = F.gelu(y, approximate="tanh" if activation == "tanh-gelu" else "none")
    return y if other is None else y + other
