"""CoAttention: one score matrix, read in both directions."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.explicit_weights import build_bare_call, no_values, read_by_weights, score_pairs, whole_mask
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Score


class CoAttended(NamedTuple):
    """The outputs and weights of both directions."""

    of_q: Attended  # out "*b q e", weights "*b q k"
    of_k: Attended  # out "*b k d", weights "*b k q"


class PairScores(NamedTuple):
    """One score matrix for q and k, with the calls of both directions."""

    scores: Tensor  # "*b q k"
    q_to_k: AttentionCall  # q attends to k
    q_to_k_nonfinite: Tensor | None
    k_to_q: AttentionCall  # k attends to q
    k_to_q_nonfinite: Tensor | None


def pair_scores(
    score: Score,
    q: Tensor,
    k: Tensor,
    mask: Mask | Tensor | None,
    back: Mask | Tensor | None,
    positions: Positions | None,
) -> PairScores:
    q_to_k, q_to_k_nonfinite = build_bare_call(q, k, None, mask, positions)
    k_to_q, k_to_q_nonfinite = build_bare_call(k, q, None, back, None if positions is None else positions[::-1])
    score.check(q, k)
    # the keys of either direction have their masked non-finite numbers zeroed
    scores = score_pairs(score, score.queries(k_to_q.keys), score.keys(q_to_k.keys))
    return PairScores(scores, q_to_k, q_to_k_nonfinite, k_to_q, k_to_q_nonfinite)


class CoAttention(nn.Module):
    """normalize(S) k and normalize(Sᵀ) q of one score matrix S  (Lu et al. 2016, parallel; Parikh et al. 2016, attend).

    `mask` says which of k may be attended to by q, `back` which of q by k: usually the Lengths of each.
    """

    def __init__(self, score: Score, *, normalize: Normalizer | None = None) -> None:
        super().__init__()
        self.score = score
        self.normalize = Softmax() if normalize is None else normalize

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> tuple[Tensor, Tensor]:  # "*b q d", "*b k e" -> "*b q e", "*b k d"
        attended = self.attend(q, k, mask=mask, back=back, positions=positions)
        return attended.of_q.out, attended.of_k.out

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> CoAttended:
        """Like `forward`, and returns the results that `need` requests beside either output."""
        pairs = pair_scores(self.score, q, k, mask, back, positions)
        weights = self.normalize.weights(pairs.scores, whole_mask(pairs.q_to_k))
        back_weights = self.normalize.weights(pairs.scores.transpose(-1, -2), whole_mask(pairs.k_to_q))
        return CoAttended(
            read_by_weights(pairs.q_to_k, weights, pairs.q_to_k_nonfinite, need, self),
            read_by_weights(pairs.k_to_q, back_weights, pairs.k_to_q_nonfinite, need, self),
        )


class DynamicCoAttention(AttentionModule):
    """A [k; Bᵀq]: q reads k and the vectors that k read from q  (Xiong et al. 2017, dynamic coattention)."""

    def __init__(self, both: CoAttention) -> None:
        super().__init__()
        self.both = both

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need, _ = inputs
        no_values(v, "co-attention")
        if isinstance(k, KVCache):
            raise TypeError(
                "k must be a tensor for co-attention, which reads it from both sides; pass the keys themselves"
            )
        attended = self.both.attend(q, k, mask=mask, positions=positions, need=replace(need, weights=True))
        of_q = attended.of_q
        assert of_q.weights is not None
        out = torch.cat([of_q.out, of_q.weights @ attended.of_k.out], dim=-1)
        return of_q._replace(out=out, weights=of_q.weights if need.weights else None)
