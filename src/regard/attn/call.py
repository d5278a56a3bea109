"""The call: one attention, checked and resolved, as backends get it; and the equation itself, written once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.kv_cache import KVCache
from regard.attn.terms.bias import Added, Bias
from regard.attn.terms.mask import Mask, Rows, lead
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions, default_positions
from regard.attn.terms.read import Read, WeightedSum, entropy
from regard.attn.terms.score import Dot, Score

if TYPE_CHECKING:
    from regard.attn.maps.attention_map import AttentionMap


@dataclass(frozen=True)
class Need:
    """What `attend` is asked for beside the output."""

    weights: bool = False
    log_prob: bool = False
    lse: bool = False
    map: bool = False
    entropy: bool = False
    place: bool = False

    @property
    def drawn(self) -> bool:
        """Is anything asked for that only the weights themselves can tell?"""
        return self.weights or self.log_prob or self.entropy or self.place


class Attended(NamedTuple):
    """What was asked for by name, otherwise None."""

    out: Tensor  # "*b q v"
    weights: Tensor | None = None  # "*b q k", before dropout
    log_prob: Tensor | None = None  # "*b q", of a hard read
    lse: Tensor | None = None  # "*b q", log Σ exp of the scores
    map: "AttentionMap | tuple[AttentionMap, ...] | None" = None  # several where every head has its own attention
    entropy: Tensor | None = None  # "*b q"
    place: Tensor | None = None  # "*b q", where a hard read went; -1: nowhere


Compare = Callable[[Tensor, Tensor], Tensor]
NOTHING = Need()
DOT, SOFTMAX, MIX = Dot(), Softmax(), WeightedSum()


class AttentionInputs(NamedTuple):
    """The arguments of one call, as every attention of the library takes them."""

    q: Tensor  # "*b q d"
    k: Tensor | KVCache  # "*b k e"
    v: Tensor | None = None  # "*b k v"; None: v = k, or the values of the cache
    mask: Mask | Tensor | None = None
    positions: Positions | None = None  # None: the queries are the last keys
    need: Need = NOTHING


class Terms(NamedTuple):
    """The terms of the equation but the mask, and the dropout of its weights."""

    score: Score = DOT
    bias: Bias | Tensor | None = None
    normalize: Normalizer = SOFTMAX
    read: Read = MIX
    dropout: float = 0.0

    @classmethod
    def with_defaults(
        cls,
        score: Score | None = None,
        bias: Bias | Tensor | None = None,
        normalize: Normalizer | None = None,
        read: Read | None = None,
        dropout: float = 0.0,
    ) -> "Terms":
        """Dot(), Softmax() and WeightedSum() where there is None."""
        score, normalize = DOT if score is None else score, SOFTMAX if normalize is None else normalize
        return cls(score, bias, normalize, MIX if read is None else read, dropout)


@dataclass(slots=True, eq=False)
class AttentionCall:
    """One attention: projected tensors and terms. A part of it, some queries and some keys, is again a call."""

    q: Tensor  # "*b q d", as it came: what a bias reads
    queries: Tensor  # "*b q c"
    keys: Tensor  # "*b k c"
    v: Tensor  # "*b k v"
    score: Score
    bias: Bias | None
    mask: Mask | None
    normalize: Normalizer
    read: Read
    dropout: float
    need: Need
    batch: tuple[int, ...]
    group: int  # how many query heads share a key head
    total: int | Tensor  # how many keys the whole call has, or each sample, "*b 1 1": what a bias may read
    given: Positions | None  # None: the queries are the last keys

    def positions(self) -> Positions:
        if self.given is not None:
            return self.given
        return default_positions(self.q.shape[-2], self.keys.shape[-2], self.q.device)

    def weights(self) -> int:
        """How many weights the call has in all."""
        return math.prod(self.batch) * self.queries.shape[-2] * self.keys.shape[-2]

    def spread(self, t: Tensor) -> Tensor:
        """Keys or values with every head repeated for the query heads that share it."""
        return t if self.group == 1 else t.repeat_interleave(self.group, dim=-3)

    def allowed(self) -> Tensor | None:
        """The mask as a boolean tensor that broadcasts to the scores."""
        return None if self.mask is None else lead(self.mask.dense(*self.positions()), len(self.batch) + 2)

    def part(self, rows: Rows, columns: Rows) -> "AttentionCall":
        """The same call for some of its queries and keys, by index."""
        i, j = self.positions()
        bias = self.bias
        if isinstance(bias, Added):
            bias = Added(_cut(_cut(bias.values, -2, rows), -1, columns))
        queries = self.queries[..., rows, :]
        return replace(
            self,
            q=queries if self.q is self.queries else self.q[..., rows, :],
            queries=queries,
            keys=self.keys[..., columns, :],
            v=self.v[..., columns, :],
            bias=bias,
            mask=None if self.mask is None else self.mask.part(rows, columns),
            given=(i[..., rows], j[..., columns]),
        )

    def sample(self, n: int) -> "AttentionCall":
        """The same call for sample n of the first batch axis, which stays as an axis of size one."""
        i, j = self.positions()
        bias = self.bias
        if isinstance(bias, Added):
            bias = Added(_nth(bias.values, n, len(self.batch) + 2))
        own = len(self.batch) + 2
        queries = _nth(self.queries, n, own)
        return replace(
            self,
            q=queries if self.q is self.queries else _nth(self.q, n, own),
            queries=queries,
            keys=_nth(self.keys, n, own),
            v=_nth(self.v, n, own),
            bias=bias,
            mask=None if self.mask is None else self.mask.sample(n),
            batch=(1, *self.batch[1:]),
            total=_nth(self.total, n, own) if isinstance(self.total, Tensor) else self.total,
            given=(_nth(i, n, max(i.ndim, 2)), _nth(j, n, max(j.ndim, 2))),
        )


def _nth(t: Tensor, n: int, axes: int) -> Tensor:
    """Sample n of a tensor that has all its `axes`; one with fewer, or with one sample, serves every sample."""
    return t[n : n + 1] if t.ndim == axes and t.shape[0] > 1 else t


def _cut(t: Tensor, dim: int, index: Rows) -> Tensor:
    if t.shape[dim] == 1:
        return t
    return t[(..., index, slice(None)) if dim == -2 else (..., index)]


def scores(call: AttentionCall, compare: Compare | None = None) -> Tensor:  # -> "*b q k"
    """score(q, k) + bias."""
    s = (call.score.compare if compare is None else compare)(call.queries, call.spread(call.keys))
    if call.bias is not None:
        s = s + call.bias(call.q, *call.positions(), call.total)
    return s


def allowed_for(call: AttentionCall, s: Tensor) -> Tensor | None:
    """The mask, and a given bias of −inf counts as one."""
    allowed = call.allowed()
    if isinstance(call.bias, Added) and not call.normalize.hides_infinite:
        seen = s > -torch.inf
        return seen if allowed is None else seen & allowed
    return allowed


def equation(call: AttentionCall, generator: torch.Generator | None = None, compare: Compare | None = None) -> Attended:
    """weights = normalize(score(q, k) + bias, mask); out = read(weights, v)."""
    need = call.need
    s = scores(call, compare)
    allowed = allowed_for(call, s)
    weights = call.normalize.weights(s, allowed)
    kept = weights if call.dropout == 0.0 else drop(weights, call.dropout, generator)
    taken = call.read.take(kept, call.spread(call.v), generator)
    return Attended(
        taken.out,
        weights.to(call.v.dtype) if need.weights else None,
        taken.log_prob if need.log_prob else None,
        call.normalize.lse(s, allowed) if need.lse and isinstance(call.normalize, Softmax) else None,
        None,
        entropy(weights) if need.entropy else None,
        taken.place if need.place else None,
    )


def drop(weights: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Dropout of weights  (Srivastava et al. 2014), from a generator that can be replayed."""
    if generator is None:
        return F.dropout(weights, p)
    keep = torch.empty_like(weights).bernoulli_(1 - p, generator=generator)
    return weights * keep / (1 - p)
