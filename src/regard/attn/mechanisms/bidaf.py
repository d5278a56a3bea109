"""AttentionFlow: the bidirectional attention of BiDAF."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.mechanisms.coattention import PairScores, pair_scores
from regard.attn.mechanisms.explicit_weights import mix, no_values, read_by_weights, whole_mask
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Trilinear


class Flow(NamedTuple):
    """The output of BiDAF and the weights of both directions."""

    out: Tensor  # "*b q 4d"
    weights: Tensor  # "*b q k": from each word of the context to the question
    back: Tensor  # "*b q": from the question to the context


class AttentionFlow(nn.Module):
    """[h; ũ; h∘ũ; h∘h̃], ũ = Σ_j softmax_j(S) u_j, h̃ = Σ_t softmax_t(max_j S) h_t  (Seo et al. 2017, BiDAF).

    q is the context h and k the question u, of one width; the score is Trilinear, without a (q, k, 3d) tensor. `mask`
    marks the words of the question, `back` the words of the context.
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
        """Like `forward`, and returns the results that `need` requests; weights are those over k, `flow` has both."""
        no_values(v, "AttentionFlow")
        flow, read = self._flow(q, pair_scores(self.score, q, k, mask, back, positions), need)
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
        return self._flow(q, pair_scores(self.score, q, k, mask, back, positions), NOTHING)[0]

    def _flow(self, q: Tensor, pairs: PairScores, need: Need) -> tuple[Flow, Attended]:
        softmax, scores, allowed = Softmax(), pairs.scores, whole_mask(pairs.q_to_k)
        weights = softmax.weights(scores, allowed)
        read = read_by_weights(pairs.q_to_k, weights, pairs.q_to_k_nonfinite, need, self)
        row_max, rows = _row_max(scores, allowed, whole_mask(pairs.k_to_q))
        back_weights = softmax.weights(row_max, rows)  # (*b, q)
        context = pairs.k_to_q.v
        pooled = mix(back_weights.unsqueeze(-2), context, self)  # (*b, 1, d)
        if (
            pairs.k_to_q_nonfinite is not None
        ):  # one pooled vector for all rows: it becomes NaN with any visible word that is not finite
            is_nan = (rows & ~torch.isfinite(q).all(-1)).any(-1, keepdim=True)
            back_weights, pooled = (
                back_weights.masked_fill(is_nan, torch.nan),
                pooled.masked_fill(is_nan.unsqueeze(-1), torch.nan),
            )
        out = torch.cat([context.expand(read.out.shape), read.out, context * read.out, context * pooled], dim=-1)
        return Flow(out, weights.to(q.dtype), back_weights.to(q.dtype)), read

    def extra_repr(self) -> str:
        return f"back=max, out={4 * self.score.query.numel()}"


def _row_max(scores: Tensor, allowed: Tensor | None, back: Tensor | None) -> tuple[Tensor, Tensor]:
    """max_j S of every row, and the rows that can be attended to: those with an allowed key."""
    if scores.shape[-1] == 0:
        zeros = scores.new_zeros(scores.shape[:-1])
        return zeros, zeros.bool()
    if allowed is None:
        row_max = scores.amax(-1)
        rows = torch.ones_like(row_max, dtype=torch.bool)
    else:
        row_max = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).amax(-1)
        rows = allowed.any(-1)
    return row_max, rows if back is None else rows & back.any(-2)
