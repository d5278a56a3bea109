"""Functions of the scores of another score: SoftCap bounds them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.attn.terms.score import Dot, Score
from regard.attn.terms.tiles import QueryKeyPairs
from regard.common import checks

__all__ = ["SoftCap"]


class WrappedScore(Score):
    """A function of the scores of another score; subclasses implement `compare`."""

    def __init__(self, score: Score | None) -> None:
        super().__init__()
        if score is not None:
            checks.instance_of("score", score, Score, "Dot()")
        self.score = Dot() if score is None else score

    def queries(self, q: Tensor) -> Tensor:
        return self.score.queries(q)

    def keys(self, k: Tensor) -> Tensor:
        return self.score.keys(k)

    def shift_keys(self, keys: Tensor, start: int) -> Tensor:
        return self.score.shift_keys(keys, start)

    def operands(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        return self.score.operands(queries, keys)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        self.score.check(q, k)


class SoftCap(WrappedScore):
    """cap · tanh(score(q, k) / cap), a score of at most `cap`  (Bello et al. 2017, C · tanh; Gemma 2 has cap = 50)."""

    def __init__(self, cap: float, score: Score | None = None) -> None:
        super().__init__(score)
        checks.positive("cap", cap, "SoftCap")
        if math.isinf(cap):
            raise ValueError(f"cap must be finite for SoftCap, got {cap}; leave SoftCap out to bound nothing")
        self.cap = cap

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.cap * torch.tanh(self.score.compare(queries, keys) / self.cap)

    @property
    def dot_score(self) -> Score | None:
        return self.score.dot_score

    def dot_mod(self, pairs: QueryKeyPairs) -> Callable[[Tensor], Tensor]:
        inner, cap = self.score.dot_mod(pairs), pairs.number(float(self.cap))
        return lambda x: cap * torch.tanh(inner(x) / cap)

    def extra_repr(self) -> str:
        return f"{self.cap:g}"
