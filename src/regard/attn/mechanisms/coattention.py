"""CoAttention: one matrix of scores, read in both directions."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionCall, AttentionInputs, Need
from regard.attn.explicit_weights import attended, compared, looked, no_values, whole_mask
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Score


class CoAttended(NamedTuple):
    """What each side read from the other."""

    of_q: Attended  # out "*b q e", weights "*b q k"
    of_k: Attended  # out "*b k d", weights "*b k q"


class Pairs(NamedTuple):
    """Every q with every k: scored once, masked twice."""

    scores: Tensor  # "*b q k"
    there: AttentionCall  # q looks at k
    there_felt: Tensor | None
    back: AttentionCall  # k looks at q
    back_felt: Tensor | None


def pairs_of(
    score: Score,
    q: Tensor,
    k: Tensor,
    mask: Mask | Tensor | None,
    back: Mask | Tensor | None,
    positions: Positions | None,
) -> Pairs:
    there, there_felt = looked(q, k, None, mask, positions)
    reverse, back_felt = looked(k, q, None, back, None if positions is None else positions[::-1])
    score.check(q, k)
    # the keys of either direction are free of what may not be looked at and is not a number
    scores = compared(score, score.queries(reverse.keys), score.keys(there.keys))
    return Pairs(scores, there, there_felt, reverse, back_felt)


class CoAttention(nn.Module):
    """normalize(S) k and normalize(Sᵀ) q of one score matrix S  (Lu et al. 2016, parallel; Parikh et al. 2016, attend).

    `mask` says who in k may be looked at by q, `back` who in q by k: usually the Lengths of each.
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
        got = self.attend(q, k, mask=mask, back=back, positions=positions)
        return got.of_q.out, got.of_k.out

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
        """The same, with what `need` asks for beside either output."""
        pairs = pairs_of(self.score, q, k, mask, back, positions)
        there = self.normalize.weights(pairs.scores, whole_mask(pairs.there))
        home = self.normalize.weights(pairs.scores.transpose(-1, -2), whole_mask(pairs.back))
        return CoAttended(
            attended(pairs.there, there, pairs.there_felt, need, self),
            attended(pairs.back, home, pairs.back_felt, need, self),
        )


class DynamicCoAttention(AttentionModule):
    """A [k; Bᵀq]: what q reads from k, and from what k reads from q  (Xiong et al. 2017, dynamic coattention)."""

    def __init__(self, both: CoAttention) -> None:
        super().__init__()
        self.both = both

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        q, k, v, mask, positions, need = inputs
        no_values(v, "co-attention")
        if isinstance(k, KVCache):
            raise TypeError(
                "k must be a tensor for co-attention, which reads it from both sides; pass the keys themselves"
            )
        got = self.both.attend(q, k, mask=mask, positions=positions, need=replace(need, weights=True))
        there = got.of_q
        assert there.weights is not None
        out = torch.cat([there.out, there.weights @ got.of_k.out], dim=-1)
        return there._replace(out=out, weights=there.weights if need.weights else None)
