"""The difference of two maps of MultiHead: `MultiHead(..., difference=Differential(head_dim, layer=1))`."""

import math

import torch
from torch import Tensor, nn

from regard.attn.kv_cache import KVCache
from regard.common import checks


class Differential(nn.Module):
    """(softmax(q_n k_n) − λ softmax(q_m k_m)) [v_n; v_m], m = n + h/2: noise that both maps share is cancelled
    (Ye et al. 2025, eq. 1; heads are paired as in DiffLlama).

    λ = exp(a·b) − exp(c·d) + λ₀, with vectors a, b, c, d that all heads share and λ₀ = 0.8 − 0.6 e^(−0.3 (layer − 1));
    `layer` counts from 1. The output of a pair is RMS-normalized and multiplied by 1 − λ₀. Weights are those of both
    maps, (b, h, q, k): `subtract(weights)` is their difference, whose rows sum to 1 − λ and may be negative.
    """

    def __init__(self, head_dim: int, *, layer: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        checks.positive_ints("Differential", head_dim=head_dim, layer=layer)
        checks.positive("eps", eps, "Differential")
        self.head_dim, self.layer = head_dim, layer
        vectors = (nn.Parameter(torch.randn(head_dim) * 0.1) for _ in range(4))
        self.query_1, self.key_1, self.query_2, self.key_2 = vectors
        self.norm: nn.Module = nn.RMSNorm(2 * head_dim, eps, elementwise_affine=False)

    @property
    def start(self) -> float:
        """λ₀."""
        return 0.8 - 0.6 * math.exp(-0.3 * (self.layer - 1))

    def factor(self) -> Tensor:
        """λ."""
        wide = checks.accumulate_dtype(self.query_1.dtype)
        first = (self.query_1.to(wide) * self.key_1).sum().exp()
        return first - (self.query_2.to(wide) * self.key_2).sum().exp() + self.start

    def subtract(self, t: Tensor) -> Tensor:  # "*b h q w" -> "*b h/2 q w"
        """The first map of every pair minus λ times the second, of weights or outputs."""
        first, second = t.chunk(2, dim=-3)
        return first - self.factor().to(t.dtype) * second

    def forward(self, out: Tensor) -> Tensor:  # "*b h q 2d" -> "*b h/2 q 2d"
        normed: Tensor = self.norm(self.subtract(out))
        return normed * (1 - self.start)

    def pair(self, memory: KVCache) -> KVCache:  # values "*b h k d" -> "*b h k 2d"
        """The memory with the values of both heads of a pair, side by side, for each of them."""
        if memory.values.shape[-3] % 2:
            raise ValueError(
                f"difference pairs head n with n + h/2, but this process has {memory.values.shape[-3]} key heads; "
                "leave the difference out of a tensor-parallel layer"
            )
        both = torch.cat(memory.values.chunk(2, dim=-3), dim=-1)
        values = torch.cat([both, both], dim=-3)
        return KVCache(memory.keys, values, memory.positions, None, memory, votes=memory.votes)

    def check(self, heads: int, kv_heads: int, head_dim: int, head_value_dim: int) -> None:
        """Raises if the heads do not pair, or are of another width."""
        if heads % 2 or kv_heads % 2:
            raise ValueError(
                f"difference pairs head n with n + h/2: heads and kv_heads must be even, got {heads} and {kv_heads}; "
                f"try heads={heads + heads % 2}, kv_heads={kv_heads + kv_heads % 2}"
            )
        if not head_dim == head_value_dim == self.head_dim:
            raise ValueError(
                f"difference must be built for heads of width {head_dim}, keys and values alike, got {self!r} and "
                f"values of width {head_value_dim}; try Differential({head_dim})"
            )

    def __repr__(self) -> str:
        return f"Differential({self.head_dim}, layer={self.layer})"
