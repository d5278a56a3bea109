"""Scores of graph attention: a leaky rectifier behind, or before, a weighted sum."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.terms.score import Score
from regard.common import checks
from regard.kernels.precision import widen

__all__ = ["GAT", "GATv2"]


class _GraphScore(Score):
    """A score of projected nodes, with one vector per head, or one for all if `heads` is None."""

    def __init__(self, width: int, heads: int | None, vectors: int, slope: float) -> None:
        super().__init__()
        name = type(self).__name__
        checks.positive_ints(name, width=width, **({} if heads is None else {"heads": heads}))
        checks.number("slope", slope, name, "0.2")
        self.width, self.heads, self.slope = width, heads, slope
        self.mixes_heads = heads is not None  # one head alone would get the vector of another
        shape = (vectors, 1, width) if heads is None else (vectors, heads, 1, width)
        self.energy = nn.Parameter(torch.empty(shape).uniform_(-1.0, 1.0) * math.sqrt(3.0 / width))

    def queries(self, q: Tensor) -> Tensor:
        return widen(q)

    def keys(self, k: Tensor) -> Tensor:
        return widen(k)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        for name, t in (("q", q), ("k", k)):
            checks.width(name, t, self.width, self)
            if t is not None and self.heads is not None:
                checks.heads(t, self.heads, self)

    def extra_repr(self) -> str:
        return f"{self.width}" if self.heads is None else f"{self.width}, heads={self.heads}"


class GAT(_GraphScore):
    """leaky(a · [q; k]) = leaky(a₁·q + a₂·k)  (Veličković et al. 2018, eq. 3), of nodes that are already projected.

    The rectifier is monotonic, so that all queries rank the keys alike: attention is static (Brody et al. 2022).
    """

    def __init__(self, width: int, heads: int | None = None, *, slope: float = 0.2) -> None:
        super().__init__(width, heads, 2, slope)

    def queries(self, q: Tensor) -> Tensor:
        return self._energies(q, 0)

    def keys(self, k: Tensor) -> Tensor:
        return self._energies(k, 1)

    def _energies(self, x: Tensor, vector: int) -> Tensor:  # "*b n d" -> "*b n 1"
        x = widen(x)
        return (x * self.energy[vector].to(x.dtype)).sum(-1, keepdim=True)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return F.leaky_relu(queries + keys.transpose(-1, -2), self.slope)


class GATv2(_GraphScore):
    """a · leaky(q + k)  (Brody et al. 2022, eq. 7), of nodes that are already projected: each query ranks the keys
    itself.
    """

    def __init__(self, width: int, heads: int | None = None, *, slope: float = 0.2) -> None:
        super().__init__(width, heads, 1, slope)

    def queries(self, q: Tensor) -> Tensor:  # "*b q d" -> "*b q 2d"
        # beside a, so that a call restricted to some heads has theirs
        q = widen(q)
        return torch.cat([q, self.energy[0].to(q.dtype).expand_as(q)], dim=-1)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        q, energy = queries.chunk(2, dim=-1)
        sums = F.leaky_relu(q.unsqueeze(-2) + keys.unsqueeze(-3), self.slope)  # (*b, q, k, d)
        return (sums @ energy.unsqueeze(-1)).squeeze(-1)
