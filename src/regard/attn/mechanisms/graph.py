"""GraphAttention: the nodes of a graph attend to their neighbours."""

from typing import Literal

import torch
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs
from regard.attn.functional import set_projected_rows_nan
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.multihead import over_heads
from regard.attn.nonfinite import hide_nonfinite_inputs
from regard.attn.terms.bias import is_score_mask
from regard.attn.terms.scores.graph_score import GATv2
from regard.common import checks
from regard.kernels.dispatch import is_autocasting

_JOINS = ("concat", "mean")


class GraphAttention(AttentionModule):
    """[head₁; …; head_h] + b, head_n = Σ_j α_ij U_n x_j, α_ij = softmax over edges of score(W_n x_i, U_n x_j)
    (Veličković et al. 2018, eq. 4-6).

    `attention` holds the score of all heads: GATv2(head_dim, heads) unless given. With `shared`, W = U, as in the
    first paper, whose layer is `GraphAttention(dim, heads, attention=Attention(GAT(head_dim, heads)), shared=True)`.
    join="mean" averages the heads, for a last layer. The edges are a mask of the call, loops included:

        layer(x, mask=Edges(index) | Window(0, 0))        "*b n d" -> "*b n h·head_dim"

    A node without an edge gives b.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        head_dim: int | None = None,
        key_dim: int | None = None,
        attention: Attention | None = None,
        shared: bool = False,
        join: Literal["concat", "mean"] = "concat",
        bias: bool = True,
    ) -> None:
        super().__init__()
        head_dim = checks.head_width("GraphAttention", dim, heads, head_dim)
        key_dim = dim if key_dim is None else key_dim
        checks.positive_ints("GraphAttention", key_dim=key_dim)
        if shared and key_dim != dim:
            raise ValueError(
                f"shared projections take queries and keys of one width, got dim={dim} and key_dim={key_dim}; "
                "leave out shared"
            )
        checks.known("join", join, _JOINS)
        if attention is not None:
            checks.instance_of("attention", attention, Attention, "Attention(GAT(head_dim, heads))")
        self.heads, self.head_dim, self.join = heads, head_dim, join
        self.key = nn.Linear(key_dim, heads * head_dim, bias=False)
        self.query = self.key if shared else nn.Linear(dim, heads * head_dim, bias=False)
        for linear in (self.query, self.key):
            nn.init.xavier_uniform_(linear.weight)
        self.attention = Attention(GATv2(head_dim, heads)) if attention is None else attention
        width = heads * head_dim if join == "concat" else head_dim
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def project_kv(self, k: Tensor, v: Tensor | None = None) -> KVCache:  # "*b k e"
        """The keys and values of all heads; both are U k unless v is given."""
        for name, t in (("k", k), ("v", v)):
            if t is not None:
                checks.floating(name, t)
                checks.width(name, t, self.key.in_features, self)
        keys = self._split(self.key(k))
        self.attention.score.check(None, keys)
        values = keys if v is None else self._split(self.key(v))
        return KVCache(self.attention.score.keys(keys), values)

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:  # weights are "*b h q k"
        nan_rows, mask = None, over_heads(inputs.mask, inputs.q)
        mask = self.attention.combine_masks(mask > -torch.inf if is_score_mask(mask) else mask)
        if mask is not None and not isinstance(inputs.k, KVCache):
            self._check(inputs)
            q, k, v, nan_rows = hide_nonfinite_inputs(inputs.q, inputs.k, inputs.v, mask, inputs.positions, self.heads)
            inputs = inputs._replace(q=q, k=k, v=v)
        result = self.attention.attend_inputs(self._inputs_of_heads(inputs))
        out = result.out.transpose(-2, -3).flatten(-2) if self.join == "concat" else result.out.mean(-3)
        return set_projected_rows_nan(result, out if self.bias is None else out + self.bias.to(out.dtype), nan_rows)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        return self.attention.explain_inputs(self._inputs_of_heads(inputs))

    def _check(self, inputs: AttentionInputs) -> None:
        checks.floating("q", inputs.q)
        checks.width("q", inputs.q, self.query.in_features, self)
        if not is_autocasting(inputs.q):
            checks.same_dtype_and_device(self, inputs.q, self.query.weight)

    def _inputs_of_heads(self, inputs: AttentionInputs) -> AttentionInputs:
        self._check(inputs)
        memory = inputs.k if isinstance(inputs.k, KVCache) else self.project_kv(inputs.k, inputs.v)
        queries, mask = self._split(self.query(inputs.q)), over_heads(inputs.mask, inputs.q)
        return inputs._replace(q=queries, k=memory, v=None, mask=mask)

    def _split(self, t: Tensor) -> Tensor:  # "*b n h·d" -> "*b h n d"
        return t.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def __repr__(self) -> str:
        sizes = f"{self.query.in_features}, {self.heads}, head_dim={self.head_dim}"
        return f"GraphAttention({sizes}, score={self.attention.score!r})"
