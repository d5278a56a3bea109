"""AttentionFlow: the bidirectional attention of BiDAF."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.explicit_weights import attended, mixed, no_values, whole_mask
from regard.attn.mechanisms.coattention import pairs_of
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Trilinear


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
        pairs = pairs_of(self.score, q, k, mask, back, positions)
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
