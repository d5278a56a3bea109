"""QueryPooling: learned queries read a sequence by any mechanism, so that it becomes a fixed number of vectors."""

import math

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import GROUPS, MECHANISMS, Factory, width
from regard.attn.layer import Attention
from regard.attn.terms.score import Dot
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks

# mechanisms that cannot pool: a learned query has no position among the keys
POSITIONAL = frozenset(GROUPS["distance from the query"])


class QueryPooling(nn.Module):
    """A = softmax(U tanh(W Hᵀ + b)), M = A H, one row of U per query  (Lin et al. 2017, eq. 6-7; Yang et al. 2016).

    Lin has several queries and no b, Yang (eq. 5-7) one query and b. `hidden` is the width of tanh(W h + b). With
    `attention`, a name of MECHANISMS or a factory like those in it, the queries are as wide as the states and read H by
    that mechanism; all queries have position 0. `out_features` is the output width per query.
    """

    def __init__(
        self,
        dim: int,
        queries: int = 1,
        *,
        hidden: int | None = None,
        bias: bool = True,
        attention: str | Factory | None = None,
    ) -> None:
        super().__init__()
        checks.positive_ints("QueryPooling", dim=dim, queries=queries)
        self.key: nn.Linear | None = None
        self.attention: nn.Module
        if attention is None:
            hidden = dim if hidden is None else hidden
            checks.positive_ints("QueryPooling", hidden=hidden)
            self.key = nn.Linear(dim, hidden, bias=bias)
            self.attention = Attention(Dot(scale=1.0))
            self.out_features = dim
        else:
            hidden = dim
            self.attention = _mechanism(attention, dim)
            try:
                self.out_features = width(self.attention, dim, dim)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"attention={attention!r} cannot read states of width {dim}: {error}; try attention='additive'"
                ) from error
        self.query = nn.Parameter(torch.randn(queries, hidden) / math.sqrt(hidden))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:  # "b t d", "b" -> "b r v"
        return self.attend(states, lengths).out

    def attend(self, states: Tensor, lengths: Tensor, need: Need = NOTHING) -> Attended:
        """Like `forward`, and returns the results that `need` requests; weights are "b r t", the mean over heads if
        there are heads.
        """
        checks.floating("states", states)
        q = self.query.to(states.dtype).expand(len(states), -1, -1)
        key_positions = torch.arange(states.shape[1], device=states.device)
        positions = (key_positions.new_zeros(q.shape[1]), key_positions)
        k, v = (states, None) if self.key is None else (torch.tanh(self.key(states)), states)
        attended: Attended = self.attention.attend(  # type: ignore[operator]
            q.to(k.dtype), k, v, mask=Lengths(lengths), positions=positions, need=need
        )
        if attended.weights is not None and attended.weights.ndim > attended.out.ndim:
            return attended._replace(weights=attended.weights.mean(-3))
        return attended

    def extra_repr(self) -> str:
        return f"queries={len(self.query)}"


def _mechanism(attention: str | Factory, dim: int) -> nn.Module:
    if not isinstance(attention, str):
        return attention(dim, dim)
    checks.known("attention", attention, MECHANISMS)
    if attention in POSITIONAL:
        raise ValueError(
            f"attention={attention!r} weighs keys by their distance from the query, and a learned query has no "
            "position among the keys; try attention='additive'"
        )
    return MECHANISMS[attention](dim, dim)
