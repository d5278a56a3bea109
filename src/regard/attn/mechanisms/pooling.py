"""Pool and KeyValue: whose query, and whose values?"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.explicit_weights import no_values
from regard.attn.functional import Positions
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.terms.mask import Mask


class Pool(nn.Module):
    """attention(u, k, v) with a learned query u: a sequence becomes one vector  (Yang et al. 2016, eq. 5-7).

    With `queries` there are so many of them, and as many vectors  (Lin et al. 2017: several hops). Yang's score is
    Additive: W u is the bias that the paper writes b.

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
        """The same, with what `need` asks for beside the output; one query alone has no axis."""
        checks.floating("k", k)
        q = self.query.to(k.dtype).expand(*k.shape[:-2], -1, -1)
        got = self.attention.attend(q, k, v, mask=mask, need=need)
        if self.queries is not None:
            return got
        wide = {name: t.squeeze(-2) for name in ("out", "weights") if (t := getattr(got, name)) is not None}
        thin = {
            name: t.squeeze(-1)
            for name in ("log_prob", "lse", "entropy", "place")
            if (t := getattr(got, name)) is not None
        }
        return got._replace(**wide, **thin)

    def explain(
        self, k: Tensor, v: Tensor | None = None, *, mask: Mask | Tensor | None = None, need: Need = NOTHING
    ) -> str:
        """Which backend runs this call and, for each one passed over, why."""
        q = self.query.to(k.dtype).expand(*k.shape[:-2], -1, -1)
        return self.attention.explain(q, k, v, mask=mask, need=need)

    def extra_repr(self) -> str:
        return f"query_dim={self.query.shape[1]}" + ("" if self.queries is None else f", queries={self.queries}")


class PoolingParts(NamedTuple):
    """A state taken apart."""

    key: Tensor  # "*b k e/parts"
    value: Tensor
    predict: Tensor | None  # only of three parts


class KeyValue(nn.Module):
    """attention(q, key, value) of states [key; value], or [key; value; predict]  (Daniluk et al. 2017).

    One part of a state is found by, another is read; of three parts the last is left to predict with. In
    self-attention the query is the state's own key: `layer(layer.split(states).key, states)`.
    """

    def __init__(self, attention: Attention, parts: int = 2) -> None:
        super().__init__()
        if parts not in (2, 3):
            raise ValueError(
                f"parts must be 2 (key, value) or 3 (key, value, predict) for KeyValue, got {parts}; try parts=2"
            )
        self.attention = attention
        self.parts = parts

    def split(self, states: Tensor) -> PoolingParts:  # "*b k e"
        checks.floating("k", states)
        left = states.shape[-1] % self.parts
        if left:
            raise ValueError(
                f"k must split evenly into {self.parts} parts, got {checks.shape(states)}, which leaves {left}; "
                f"try states of width {states.shape[-1] - left}"
            )
        key, value, *predict = states.chunk(self.parts, dim=-1)
        return PoolingParts(key, value, predict[0] if predict else None)

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e"
        """Keys projected once, to be looked at by many calls."""
        no_values(v, "KeyValue")
        parts = self.split(k)
        return self.attention.project_kv(parts.key, parts.value)

    def forward(
        self,
        q: Tensor,
        k: Tensor | KVCache,
        v: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:  # "*b q d", "*b k e" -> "*b q e/parts"
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
        no_values(v, "KeyValue")
        if isinstance(k, KVCache):
            return self.attention.attend(q, k, mask=mask, positions=positions, need=need)
        key, value, _ = self.split(k)
        return self.attention.attend(q, key, value, mask=mask, positions=positions, need=need)

    def extra_repr(self) -> str:
        return f"parts={self.parts}"
