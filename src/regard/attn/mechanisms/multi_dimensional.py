"""MultiDimensional: every channel of the values has weights of its own."""

import math

import torch
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs, Terms
from regard.attn.functional import attend_inputs, explain_inputs
from regard.attn.kv_cache import KVCache
from regard.attn.multihead import over_heads
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.score import Score, project
from regard.common import checks


class _ChannelScore(Score):
    """v_c · tanh(W q + U k + b), a score per channel c: one head of queries and keys gives the scores of all heads."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int, channels: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden)
        self.key = nn.Linear(key_dim, hidden, bias=False)
        bound = 1.0 / math.sqrt(hidden)
        self.energy = nn.Parameter(torch.empty(channels, hidden).uniform_(-bound, bound))

    def queries(self, q: Tensor) -> Tensor:
        return project(self.query, q)

    def keys(self, k: Tensor) -> Tensor:
        return project(self.key, k)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.query.in_features, self)
        checks.width("k", k, self.key.in_features, self)

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:  # "*b 1 q c", "*b 1 k c" -> "*b channels q k"
        hidden = torch.tanh(queries.unsqueeze(-2) + keys.unsqueeze(-3))  # (*b, 1, q, k, hidden)
        energy = self.energy.to(hidden.dtype)
        if hidden.shape[-4] == 1:
            return (hidden.squeeze(-4) @ energy.T).movedim(-1, -3)
        return (hidden * energy.unsqueeze(-2).unsqueeze(-2)).sum(-1)

    def __repr__(self) -> str:
        sizes = f"{self.query.in_features}, {self.key.in_features}, {self.query.out_features}"
        return f"MultiDimensional({sizes}, {len(self.energy)})"


class MultiDimensional(AttentionModule):
    """out_c = Σ_j softmax_j(s_ij)_c v_jc, s_ij = W_s tanh(W q_i + U k_j + b), a score per channel  (Shen et al. 2018,
    DiSAN, multi-dimensional).

    `value_dim` is the number of channels, the width of v. Weights are "*b c q k": a channel has the place of a head.
    The vectors tanh(W q + U k + b) of all pairs are in memory at once.
    """

    def __init__(
        self, query_dim: int, key_dim: int, hidden: int, value_dim: int, *, normalize: Normalizer | None = None
    ) -> None:
        super().__init__()
        checks.positive_ints(
            "MultiDimensional", query_dim=query_dim, key_dim=key_dim, hidden=hidden, value_dim=value_dim
        )
        self.score = _ChannelScore(query_dim, key_dim, hidden, value_dim)
        self.normalize = Softmax() if normalize is None else normalize

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e", "*b k c"
        """The projected keys, and one channel of the values per head."""
        self.score.check(None, k)
        return KVCache(self.score.keys(k).unsqueeze(-3), self._channels(k if v is None else v))

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:  # weights are "*b c q k"
        result = attend_inputs(self._heads(inputs), Terms(self.score, normalize=self.normalize), None)
        return result._replace(out=result.out.squeeze(-1).transpose(-1, -2))

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return explain_inputs(self._heads(inputs), Terms(self.score, normalize=self.normalize), None)

    def _heads(self, inputs: AttentionInputs) -> AttentionInputs:
        q, k, v = inputs.q, inputs.k, inputs.v
        if inputs.need.map:
            raise ValueError(
                "map is not available from MultiDimensional, whose channels share one hidden layer; ask for weights"
            )
        checks.floating("q", q)
        mask = over_heads(inputs.mask, q)
        if isinstance(k, KVCache):
            return inputs._replace(q=q.unsqueeze(-3), mask=mask)
        checks.floating("k", k)
        values = self._channels(k if v is None else v)
        return inputs._replace(q=q.unsqueeze(-3), k=k.unsqueeze(-3), v=values, mask=mask)

    def _channels(self, v: Tensor) -> Tensor:  # "*b k c" -> "*b c k 1"
        checks.floating("v", v)
        checks.width("v", v, len(self.score.energy), self)
        return v.transpose(-1, -2).unsqueeze(-1)

    def __repr__(self) -> str:
        return repr(self.score)
