"""Highway: layers that a gate lets an input pass by."""

import torch
from torch import Tensor, nn

from regard.common import checks


class Highway(nn.Module):
    """y = g ∘ relu(W x + b) + (1 − g) ∘ x, g = σ(W_g x + b_g), n times  (Srivastava et al. 2015, eq. 3).

    The biases of the gates begin at −1, so that a new layer passes most of its input.
    """

    def __init__(self, dim: int, *, layers: int = 2) -> None:
        super().__init__()
        checks.positive_ints("Highway", dim=dim, layers=layers)
        self.transforms = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        for gate in self.gates:
            assert isinstance(gate, nn.Linear)
            nn.init.constant_(gate.bias, -1.0)

    def forward(self, x: Tensor) -> Tensor:  # "*b d" -> "*b d"
        for transform, gate in zip(self.transforms, self.gates, strict=True):
            x = torch.lerp(x, torch.relu(transform(x)), torch.sigmoid(gate(x)))
        return x
