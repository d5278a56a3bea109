"""WeightNormLinear: a linear layer whose rows are a direction and a length."""

import torch
from torch import Tensor, nn


class WeightNormLinear(nn.Module):
    """W x + b, W_i = g_i v_i / ‖v_i‖  (Salimans & Kingma 2016).

    W starts with elements of N(0, std²), b with zeros. Callers that use the layer many times with the same weights may
    read `weight` once and pass it.
    """

    def __init__(self, in_features: int, out_features: int, *, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(out_features, in_features).normal_(std=std))
        self.gain = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def weight(self) -> Tensor:  # "o i"
        return self.direction * (self.gain / self.direction.norm(dim=1)).unsqueeze(-1)

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:  # "*b i" -> "*b o"
        return nn.functional.linear(x, self.weight if weight is None else weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.direction.shape[1]}, {self.direction.shape[0]}"
