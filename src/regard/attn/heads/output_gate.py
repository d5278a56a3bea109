"""The gate of the output of MultiHead, before W_O: `MultiHead(..., gate=OutputGate(dim, heads))`."""

import torch
from torch import Tensor, nn

from regard.common import checks


class OutputGate(nn.Module):
    """out_h ← out_h ∘ σ(W_h x): x decides how much of the output of head h W_O gets  (Qiu et al. 2025, eq. 5, G1).

    W_h has one row per head, or with `channels=head_value_dim` one per head and channel, as in Qwen3-Next. Softmax
    weights sum to one; with the gate a head can be silent without a key that takes its weight. `bias` adds b to W_h x:
    a large b is an open gate.
    """

    def __init__(self, dim: int, heads: int, channels: int = 1, *, bias: bool = False) -> None:
        super().__init__()
        checks.positive_ints("OutputGate", dim=dim, heads=heads, channels=channels)
        self.heads, self.channels = heads, channels
        self.map = nn.Linear(dim, heads * channels, bias=bias)

    def forward(self, out: Tensor, x: Tensor) -> Tensor:  # "*b n h v", "*b n d" -> "*b n h v"
        if out.shape[-2] != self.heads:
            raise ValueError(
                f"{self!r} weights {self.heads} heads, but this process has {out.shape[-2]} of them; "
                "leave the gate out of a tensor-parallel layer"
            )
        return out * torch.sigmoid(self.map(x)).unflatten(-1, (self.heads, self.channels))

    def check(self, dim: int, heads: int, head_value_dim: int) -> None:
        """Raises if it was built for heads of another number or width, or for inputs of another width."""
        if (self.map.in_features, self.heads) != (dim, heads) or self.channels not in (1, head_value_dim):
            raise ValueError(
                f"gate must weight {heads} heads of width {head_value_dim} by inputs {dim} wide, got {self!r}; "
                f"try OutputGate({dim}, {heads}), or OutputGate({dim}, {heads}, {head_value_dim})"
            )

    def __repr__(self) -> str:
        channels = "" if self.channels == 1 else f", {self.channels}"
        bias = "" if self.map.bias is None else ", bias=True"
        return f"OutputGate({self.map.in_features}, {self.heads}{channels}{bias})"
