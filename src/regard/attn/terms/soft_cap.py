"""SoftCap: a bound on the scores of another score."""

import torch
from torch import Tensor

from regard.attn.terms.score import Dot, Score
from regard.common import checks

__all__ = ["SoftCap"]


class SoftCap(Score):
    """cap · tanh(score(q, k) / cap), a score of at most `cap`  (Bello et al. 2017, C · tanh; Gemma 2 has cap = 50)."""

    def __init__(self, cap: float, score: Score | None = None) -> None:
        super().__init__()
        checks.positive("cap", cap, "SoftCap")
        self.cap = cap
        self.score = Dot() if score is None else score

    def queries(self, q: Tensor) -> Tensor:
        return self.score.queries(q)

    def keys(self, k: Tensor) -> Tensor:
        return self.score.keys(k)

    def shift_keys(self, keys: Tensor, start: int) -> Tensor:
        return self.score.shift_keys(keys, start)

    def operands(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        return self.score.operands(queries, keys)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.cap * torch.tanh(self.score.compare(queries, keys) / self.cap)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        self.score.check(q, k)

    def extra_repr(self) -> str:
        return f"{self.cap:g}"
