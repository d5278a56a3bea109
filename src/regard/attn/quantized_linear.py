"""QuantizedLinear and QuantizedEmbedding: the layers of torch with 8-bit weights, for inference.

They stand here because the native steps of attention read their weights. `regard.quantize` puts them into a model.
"""

import torch
from torch import Tensor, nn

from regard.kernels.int8_linear import Int8Matrix, int8_linear, quantize_matrix


class QuantizedLinear(nn.Module):
    """W x + b, W = scale ∘ n with n in 8 bits and one scale per output; every row of x is rounded to 8 bits, too.

    With `is_float` x stays as it is: less error, less speed. The result of a row does not depend on the other rows.
    There is no gradient: an input that needs one is refused.
    """

    packed: Tensor  # uint8 "p q 16 4", see Int8Matrix
    scale: Tensor  # "f"

    def __init__(self, matrix: Int8Matrix, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = matrix.shape
        self.is_float = matrix.is_float
        self.register_buffer("packed", matrix.packed)
        self.register_buffer("scale", matrix.scale)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    @staticmethod
    def of(linear: nn.Linear, *, is_float: bool = False) -> "QuantizedLinear":
        return QuantizedLinear(quantize_matrix(linear.weight, is_float), linear.bias)

    @property
    def matrix(self) -> Int8Matrix:
        return Int8Matrix(self._buffers["packed"], self._buffers["scale"], self.in_features, self.is_float)  # type: ignore[arg-type]

    @property
    def weight(self) -> Tensor:  # "f d"
        """A copy of W in floats, for code that reads it; this layer multiplies by the 8-bit numbers."""
        return self.matrix.dequantize()

    def forward(self, x: Tensor) -> Tensor:  # "*b d" -> "*b f"
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "a layer with 8-bit weights has no gradient; wrap the call in torch.no_grad(), or train the model "
                "before regard.quantize"
            )
        return int8_linear(x, self.matrix, self.bias)

    def extra_repr(self) -> str:
        activations = ", activations in float32" if self.is_float else ""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}{activations}"


class QuantizedEmbedding(nn.Module):
    """E[w], E = scale ∘ n with n in 8 bits and one scale per row; it may share them with a QuantizedLinear."""

    packed: Tensor
    scale: Tensor

    def __init__(self, matrix: Int8Matrix, padding_idx: int | None = None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = matrix.shape
        self.padding_idx = padding_idx
        self.register_buffer("packed", matrix.packed)
        self.register_buffer("scale", matrix.scale)

    @property
    def matrix(self) -> Int8Matrix:
        return Int8Matrix(self.packed, self.scale, self.embedding_dim)

    @property
    def weight(self) -> Tensor:  # "v d"
        """A copy of E in floats, for code that reads it."""
        return self.matrix.dequantize()

    def forward(self, tokens: Tensor) -> Tensor:  # "*b" -> "*b d"
        return self.matrix.rows(tokens)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
