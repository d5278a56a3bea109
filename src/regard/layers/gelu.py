"""TanhGELU: the activation of GPT-2."""

from torch import Tensor, nn

from regard.kernels.gelu import gelu_tanh


class TanhGELU(nn.GELU):
    """x σ(2u), u = √(2/π) (x + 0.044715 x³)  (Hendrycks & Gimpel 2016), in one native pass on a CPU."""

    def __init__(self) -> None:
        super().__init__("tanh")

    def forward(self, input: Tensor) -> Tensor:
        return gelu_tanh(input)


def is_tanh_gelu(activation: nn.GELU) -> bool:
    """Whether this is the form with tanh, and no class of others."""
    return type(activation) in (nn.GELU, TanhGELU) and activation.approximate == "tanh"
