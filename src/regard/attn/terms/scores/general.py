"""Scores of the family of the general one: with a bias, and behind an activation."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.attn.terms.score import Bilinear, DotScore, Score, project
from regard.attn.terms.soft_cap import WrappedScore
from regard.common import checks
from regard.kernels.precision import widen

__all__ = ["Activated", "BiasedBilinear"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


class BiasedBilinear(DotScore):
    """kᵀ (W q + b)  (Sordoni et al. 2016; biased general in Brauwers and Frasincar 2023): b scores a key by itself."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        checks.positive_ints("BiasedBilinear", query_dim=query_dim, key_dim=key_dim)
        self.query = nn.Linear(query_dim, key_dim)

    def queries(self, q: Tensor) -> Tensor:
        return project(self.query, q)

    def keys(self, k: Tensor) -> Tensor:
        return widen(k)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.query.in_features, self)
        checks.width("k", k, self.query.out_features, self)

    def __repr__(self) -> str:
        return f"BiasedBilinear({self.query.in_features}, {self.query.out_features})"


class Activated(WrappedScore):
    """act(score(q, k) + b): with the general score act(kᵀ W q + b)  (Ma et al. 2017, eq. 4, act = tanh).

    `activation` is a name of `ACTIVATIONS` or a function of a tensor; b is one trained number.
    """

    def __init__(self, score: Score, activation: str | Callable[[Tensor], Tensor] = "tanh") -> None:
        super().__init__(score)
        checks.instance_of("score", score, Score, "Bilinear(query_dim, key_dim)")
        if isinstance(activation, str):
            checks.known("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.offset = nn.Parameter(torch.zeros(()))

    @staticmethod
    def general(query_dim: int, key_dim: int) -> "Activated":
        """tanh(kᵀ W q + b), activated general."""
        return Activated(Bilinear(query_dim, key_dim))

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        scores = self.score.compare(queries, keys)
        activate = ACTIVATIONS[self.activation] if isinstance(self.activation, str) else self.activation
        return activate(scores + self.offset.to(scores.dtype))

    def __repr__(self) -> str:
        name = self.activation if isinstance(self.activation, str) else "custom activation"
        return f"Activated({self.score!r}, {name})"
