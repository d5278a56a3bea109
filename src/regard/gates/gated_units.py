"""Gated heads over hidden units: every head weights the units of a squashed layer."""

import math

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.common import checks
from regard.gates.base import check_axes, check_only_weights
from regard.kernels import additive


class UnitScores(nn.Module):
    """softmax_j(Π_f Q · tanh(a_if + θ_ifj)/√d): the weights of every head i over the units j; one Q for all heads.

    A score is the product of `factors` of these terms, of one by default.
    """

    def __init__(self, units: int, heads: int, d: int, *, factors: int = 1) -> None:
        super().__init__()
        self.units, self.heads, self.d, self.factors = units, heads, d, factors
        self.query = nn.Parameter(torch.randn(d))  # Q
        self.offset = nn.Parameter(torch.randn(heads * factors, units, d))  # θ

    def forward(self, a: Tensor) -> Tensor:  # "b heads·factors·d" -> "b heads units"
        # the samples are the queries of a head: no "b heads units d" tensor is held
        queries = a.to(self.offset.dtype).unflatten(-1, (-1, self.d)).transpose(0, 1)
        query = self.query / math.sqrt(self.d)
        if self.factors == 1:
            weights, _ = additive.weights(queries, self.offset, query)
        else:
            scores = additive.scores(queries, self.offset, query).unflatten(0, (self.heads, self.factors))
            weights = torch.softmax(scores.prod(1), -1)
        return weights.transpose(0, 1)


class GatedUnits(nn.Module):
    """σ(R), R = Σ_i α_i ∘ (softmax(H) + b_r), H = σ(W x + b), α_i = softmax_j(Q · tanh(W_i H + θ_ij)/√d).

    "b dim" -> "b units". α_i are the weights of head i over the hidden units; the heads share Q, each has its own W_i
    and an offset θ_ij per unit. `d` is the width of Q.
    """

    def __init__(self, dim: int, units: int, heads: int, *, d: int = 64) -> None:
        super().__init__()
        checks.positive_ints("GatedUnits", dim=dim, units=units, heads=heads, d=d)
        self.dim, self.units, self.heads, self.d = dim, units, heads, d
        self.squash = nn.Linear(dim, units)
        self.key = nn.Linear(units, heads * d, bias=False)
        self.scores = UnitScores(units, heads, d)
        # weights of n units are about 1/n: as large a bias brings R to the range in which σ is steep
        self.bias = nn.Parameter(torch.randn(units) * units / math.sqrt(heads))
        nn.init.normal_(self.squash.weight, std=4 * dim**-0.5)
        nn.init.normal_(self.key.weight, std=4 * units**-0.5)

    def forward(self, x: Tensor) -> Tensor:  # "b d" -> "b units"
        return self.attend(x).out

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights "b heads units" if `need` asks for them."""
        check_only_weights(need, self)
        check_axes(x, self.dim, "(batch, width)", self, "x.flatten(0, -2) joins the axes before the last")
        hidden = torch.sigmoid(self.squash(x))
        weights = self.scores(self.key(hidden))
        read = weights.sum(1) * (torch.softmax(hidden, -1) + self.bias)
        return Attended(torch.sigmoid(read).to(hidden.dtype), weights if need.weights else None)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, units={self.units}, heads={self.heads}, d={self.d}"
