"""Talking heads: scores mixed over heads before the normalizer, and weights behind it."""

import torch
from torch import Tensor, nn

from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.score import Score
from regard.attn.terms.soft_cap import WrappedScore
from regard.common import checks

__all__ = ["TalkingScores", "TalkingWeights"]


def _identity(heads: int, owner: str) -> nn.Parameter:
    checks.positive_ints(owner, heads=heads)
    return nn.Parameter(torch.eye(heads))


def _mix(mixture: Tensor, t: Tensor, owner: object) -> Tensor:  # "m h", "*b h q k" -> "*b m q k"
    checks.heads(t, mixture.shape[1], owner)
    return (mixture.to(t.dtype) @ t.flatten(-2)).unflatten(-1, t.shape[-2:])


class TalkingScores(WrappedScore):
    """s′_n = Σ_m P_nm score(q_m, k_m): every head reads the scores of all  (Shazeer et al. 2020, P_l).

    P is the identity at first, so that a new layer computes plain heads.
    """

    mixes_heads = True

    def __init__(self, heads: int, score: Score | None = None) -> None:
        super().__init__(score)
        self.mixture = _identity(heads, "TalkingScores")

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return _mix(self.mixture, self.score.compare(queries, keys), self)

    def __repr__(self) -> str:
        return f"TalkingScores({len(self.mixture)}, {self.score!r})"


class TalkingWeights(Normalizer):
    """α′_n = Σ_m P_nm normalize(s_m): every head reads by the weights of all  (Shazeer et al. 2020, P_w).

    P is the identity at first. Rows need not sum to one, and weights may be negative.
    """

    distribution = False
    mixes_heads = True

    def __init__(self, heads: int, normalize: Normalizer | None = None) -> None:
        super().__init__()
        if normalize is not None:
            checks.instance_of("normalize", normalize, Normalizer, "Softmax()")
        self.normalize = Softmax() if normalize is None else normalize
        self.hides_infinite, self.reads_order = self.normalize.hides_infinite, self.normalize.reads_order
        self.mixture = _identity(heads, "TalkingWeights")

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        mixed = _mix(self.mixture, self.normalize.weights(scores, allowed), self)
        # a mask of one head hides its keys, whatever the others read
        return mixed if allowed is None else mixed.masked_fill(~allowed, 0.0)

    def __repr__(self) -> str:
        return f"TalkingWeights({len(self.mixture)}, {self.normalize!r})"
