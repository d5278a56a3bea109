"""Pool: attention pooling by a learned query."""

import math

import torch
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionInputs, Need
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.mask import Mask
from regard.common import checks


class Pool(nn.Module):
    """attention(u, k, v) with a learned query u: a sequence becomes one vector  (Yang et al. 2016, eq. 5-7).

    With `queries` there are several learned queries and one vector per query  (Lin et al. 2017: several hops). Yang's
    score is Additive: W u is the bias that the paper writes b.

        Pool(Attention(Additive(64, 128, 64)), 64)(k)      "*b k e" -> "*b e"
        Pool(Attention(Dot()), 128, queries=4)(k)          "*b k e" -> "*b 4 e"
    """

    def __init__(self, attention: Attention, query_dim: int, queries: int | None = None) -> None:
        super().__init__()
        checks.positive("query_dim", query_dim, "Pool")
        if queries is not None:
            checks.positive("queries", queries, "Pool")
        self.attention = attention
        size = (1 if queries is None else queries, query_dim)
        self.query = nn.Parameter(torch.randn(size) / math.sqrt(query_dim))
        self.queries = queries

    def forward(self, k: Tensor, v: Tensor | None = None, *, mask: Mask | Tensor | None = None) -> Tensor:
        return self.attend(k, v, mask=mask).out

    def attend(
        self, k: Tensor, v: Tensor | None = None, *, mask: Mask | Tensor | None = None, need: Need = NOTHING
    ) -> Attended:  # "*b k e", "*b k v" -> "*b v", or "*b queries v"
        """Like `forward`, and returns the results that `need` requests; without `queries` there is no query axis."""
        checks.floating("k", k)
        q = self.query.to(k.dtype).expand(*k.shape[:-2], -1, -1)
        attended = self.attention.attend(q, k, v, mask=mask, need=need)
        if self.queries is not None:
            return attended
        return attended.transform(lambda t: t.squeeze(-2), lambda t: t.squeeze(-1))

    def explain(
        self, k: Tensor, v: Tensor | None = None, *, mask: Mask | Tensor | None = None, need: Need = NOTHING
    ) -> str:
        """Names the backend that runs this call and gives, for every other backend, the reason why it does not."""
        q = self.query.to(k.dtype).expand(*k.shape[:-2], -1, -1)
        return self.attention.explain(q, k, v, mask=mask, need=need)

    def extra_repr(self) -> str:
        return f"query_dim={self.query.shape[1]}" + ("" if self.queries is None else f", queries={self.queries}")


class BroadcastPool(AttentionModule):
    """Pool for every query: all get the output of one learned query, whatever they contain."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k v"
        """Projects the keys once, for many calls."""
        return self.pool.attention.project_kv(k, v)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        return self.pool.attention.attend_inputs(self._with_learned_query(inputs))

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return self.pool.attention.explain_inputs(self._with_learned_query(inputs))

    def _with_learned_query(self, inputs: AttentionInputs) -> AttentionInputs:
        checks.floating("q", inputs.q)
        return inputs._replace(q=self.pool.query.to(inputs.q.dtype).expand(*inputs.q.shape[:-1], -1))
