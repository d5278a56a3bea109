"""CoAttention and AttentionFlow: one matrix of scores, read in both directions."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, AttentionCall, Need
from regard.attn.explicit_weights import attended, compared, looked, mixed, no_values, whole_mask
from regard.attn.functional import Positions
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.score import Score, Trilinear


class CoAttended(NamedTuple):
    """What each side read from the other."""

    of_q: Attended  # out "*b q e", weights "*b q k"
    of_k: Attended  # out "*b k d", weights "*b k q"


class _Pairs(NamedTuple):
    """Every q with every k: scored once, masked twice."""

    scores: Tensor  # "*b q k"
    there: AttentionCall  # q looks at k
    there_felt: Tensor | None
    back: AttentionCall  # k looks at q
    back_felt: Tensor | None


def _pairs(
    score: Score,
    q: Tensor,
    k: Tensor,
    mask: Mask | Tensor | None,
    back: Mask | Tensor | None,
    positions: Positions | None,
) -> _Pairs:
    there, there_felt = looked(q, k, None, mask, positions)
    reverse, back_felt = looked(k, q, None, back, None if positions is None else positions[::-1])
    score.check(q, k)
    # the keys of either direction are free of what may not be looked at and is not a number
    scores = compared(score, score.queries(reverse.keys), score.keys(there.keys))
    return _Pairs(scores, there, there_felt, reverse, back_felt)


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
        pairs = _pairs(self.score, q, k, mask, back, positions)
        there = self.normalize.weights(pairs.scores, whole_mask(pairs.there))
        home = self.normalize.weights(pairs.scores.transpose(-1, -2), whole_mask(pairs.back))
        return CoAttended(
            attended(pairs.there, there, pairs.there_felt, need, self),
            attended(pairs.back, home, pairs.back_felt, need, self),
        )


class Flow(NamedTuple):
    """BiDAF's output and both of its attentions."""

    out: Tensor  # "*b q 4d"
    weights: Tensor  # "*b q k": each word of the context over the question
    back: Tensor  # "*b q": the question over the context


class AttentionFlow(nn.Module):
    """[h; ũ; h∘ũ; h∘h̃], ũ = Σ_j softmax_j(S) u_j, h̃ = Σ_t softmax_t(max_j S) h_t  (Seo et al. 2017, BiDAF).

    q is the context h, k the question u, of one width; the score is Trilinear and is never tiled. `mask` says which
    words of the question there are, `back` which of the context.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = Trilinear(dim)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:  # "*b q d", "*b k d" -> "*b q 4d"
        return self.attend(q, k, v, mask=mask, back=back, positions=positions).out

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> Attended:
        """The same, with what `need` asks for beside the output; weights are those over k, `flow` has the others."""
        no_values(v, "AttentionFlow")
        flow, read = self._flow(q, k, mask, back, positions, need)
        return read._replace(out=flow.out)

    def flow(
        self,
        q: Tensor,
        k: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        back: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> Flow:
        """The output with the weights of both directions."""
        return self._flow(q, k, mask, back, positions, NOTHING)[0]

    def _flow(
        self,
        q: Tensor,
        k: Tensor,
        mask: Mask | Tensor | None,
        back: Mask | Tensor | None,
        positions: Positions | None,
        need: Need,
    ) -> tuple[Flow, Attended]:
        pairs = _pairs(self.score, q, k, mask, back, positions)
        softmax, scores, allowed = Softmax(), pairs.scores, whole_mask(pairs.there)
        weights = softmax.weights(scores, allowed)
        read = attended(pairs.there, weights, pairs.there_felt, need, self)
        best, rows = _best(scores, allowed, whole_mask(pairs.back))
        home = softmax.weights(best, rows)  # (*b, q)
        context = pairs.back.v
        pooled = mixed(home.to(context.dtype).unsqueeze(-2), context, self)  # (*b, 1, d)
        if pairs.back_felt is not None:  # one pool for all rows: it is lost with any word that it may look at
            lost = (rows & ~torch.isfinite(q).all(-1)).any(-1, keepdim=True)
            home, pooled = home.masked_fill(lost, torch.nan), pooled.masked_fill(lost.unsqueeze(-1), torch.nan)
        out = torch.cat([context.expand(read.out.shape), read.out, context * read.out, context * pooled], dim=-1)
        return Flow(out, weights.to(q.dtype), home.to(q.dtype)), read

    def extra_repr(self) -> str:
        return f"back=max, out={4 * self.score.query.numel()}"


def _best(scores: Tensor, allowed: Tensor | None, back: Tensor | None) -> tuple[Tensor, Tensor]:
    """max_j S for every row, and the rows that can be looked at: those that may look at something themselves."""
    if scores.shape[-1] == 0:
        nothing = scores.new_zeros(scores.shape[:-1])
        return nothing, nothing.bool()
    if allowed is None:
        best = scores.amax(-1)
        rows = torch.ones_like(best, dtype=torch.bool)
    else:
        best = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).amax(-1)
        rows = allowed.any(-1)
    return best, rows if back is None else rows & back.any(-2)
