"""Hop: a question asked of a memory, and what it found added to it."""

from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.functional import Positions
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer
from regard.attn.terms.score import Dot


class Identity(Normalizer):
    """s_j: the scores themselves are the weights, as long as training starts linearly  (Sukhbaatar et al. 2015)."""

    distribution = False

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        scores = scores.to(checks.widened(scores.dtype))
        return scores if allowed is None else scores.masked_fill(~allowed, 0.0)


class MemoryHop(nn.Module):
    """u' = u + Σ_i p_i c_i, p = softmax(u · m)  (Sukhbaatar et al. 2015, end-to-end memory networks).

    k holds m, v holds c, as wide as u. `carry`, a linear map H, gives u' = H u + o: the hops of one map that a
    recurrent network would make (layer-wise tying). `Attention(Dot(scale=1.0), normalize=Plain())` starts linearly.
    """

    def __init__(self, attention: Attention | None = None, *, carry: nn.Linear | None = None) -> None:
        super().__init__()
        self.attention = Attention(Dot(scale=1.0)) if attention is None else attention
        self.carry = carry

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k d"
        """Keys projected once, to be looked at by many calls."""
        return self.attention.project_kv(k, v)

    def forward(
        self,
        q: Tensor,
        k: Tensor | KVCache,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:  # "*b q d", "*b k e", "*b k d" -> "*b q d"
        return self.attend(q, k, v, mask=mask, positions=positions).out

    def attend(
        self,
        q: Tensor,
        k: Tensor | KVCache,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> Attended:
        """The same, with what `need` asks for beside the output."""
        got = self.attention.attend(q, k, v, mask=mask, positions=positions, need=need)
        carried = q if self.carry is None else self.carry(q)
        if carried.shape[-1] != got.out.shape[-1]:
            raise ValueError(
                f"v must be as wide as what it is added to, {carried.shape[-1]} for Hop, got {got.out.shape[-1]}; "
                f"pass v with last axis {carried.shape[-1]} or carry=nn.Linear({q.shape[-1]}, {got.out.shape[-1]})"
            )
        return got._replace(out=carried + got.out)

    def explain(
        self,
        q: Tensor,
        k: Tensor | KVCache,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
        need: Need = NOTHING,
    ) -> str:
        """Which backend runs this call and, for each one passed over, why."""
        return self.attention.explain(q, k, v, mask=mask, positions=positions, need=need)
