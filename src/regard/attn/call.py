"""AttentionCall: the checked and projected arguments of one attention; and the equation itself."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.kv_cache import KVCache
from regard.attn.terms.bias import Bias, TensorBias, is_score_mask
from regard.attn.terms.mask import Mask, Rows
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.attn.terms.position import Positions, default_positions
from regard.attn.terms.read import Read, WeightedSum, entropy
from regard.attn.terms.score import Dot, Score, compare as compare_pairs
from regard.attn.terms.score_bias import ScoreBias, Selective
from regard.attn.terms.tiles import check_leading_axes, insert_head_axes
from regard.common import checks
from regard.kernels.dispatch import values_are_readable

if TYPE_CHECKING:
    from regard.attn.maps.attention_map import AttentionMap

# numbers of a mask that are looked at
_SAMPLE = 4096


@dataclass(frozen=True)
class Need:
    """The results that `attend` returns beside the output."""

    weights: bool = False
    log_prob: bool = False
    lse: bool = False
    map: bool = False
    entropy: bool = False
    key_index: bool = False
    scores: bool = False

    @property
    def needs_weights(self) -> bool:
        """Whether a requested result can only be computed from the weight matrix."""
        return self.weights or self.log_prob or self.entropy or self.key_index or self.scores


class Attended(NamedTuple):
    """The output and the requested results; fields that were not requested are None.

    A named tuple of all fields, in this order: `out, weights, *_ = attend(..., need=Need(weights=True))`.
    """

    out: Tensor  # "*b q v"
    weights: Tensor | None = None  # "*b q k", before dropout
    log_prob: Tensor | None = None  # "*b q", of a hard read
    lse: Tensor | None = None  # "*b q", log Σ exp of the scores
    map: "AttentionMap | tuple[AttentionMap, ...] | None" = None  # several where every head has its own attention
    entropy: Tensor | None = None  # "*b q"
    key_index: Tensor | None = None  # "*b q", the key that a hard read selected; -1: no key
    scores: Tensor | None = None  # "*b q k", score(q, k) + bias; −inf: masked

    def transform(self, vectors: Callable[[Tensor], Tensor], numbers: Callable[[Tensor], Tensor]) -> "Attended":
        """Applies a function to every tensor with a vector per query, and one to every tensor with a number."""
        functions = dict.fromkeys(("out", "weights", "scores"), vectors)
        functions |= dict.fromkeys(("log_prob", "lse", "entropy", "key_index"), numbers)
        tensors = {name: getattr(self, name) for name in functions}
        changed: dict[str, Any] = {name: functions[name](t) for name, t in tensors.items() if t is not None}
        return self._replace(**changed)


Compare = Callable[[Tensor, Tensor], Tensor]
NOTHING = Need()
DOT, SOFTMAX, MIX = Dot(), Softmax(), WeightedSum()


class AttentionInputs(NamedTuple):
    """The arguments of one call in the form that every attention layer takes."""

    q: Tensor  # "*b q d"
    k: Tensor | KVCache  # "*b k e"
    v: Tensor | None = None  # "*b k v"; None: v = k, or the values of the cache
    mask: Mask | Tensor | None = None
    positions: Positions | None = None  # None: the queries are the last keys
    need: Need = NOTHING
    generator: torch.Generator | None = None  # of dropout and of reads that sample; None: torch's own


class Terms(NamedTuple):
    """The terms of the equation except the mask, and the dropout of the weights."""

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
        """Replaces None by Dot(), Softmax() and WeightedSum()."""
        score, normalize = DOT if score is None else score, SOFTMAX if normalize is None else normalize
        return cls(score, bias, normalize, MIX if read is None else read, dropout)


def split_score_mask(
    mask: Mask | Tensor | None, bias: Bias | Tensor | None, *inputs: Tensor | KVCache | None
) -> tuple[Bias | Tensor | None, Mask | Tensor | None]:
    """The bias and the mask of a call with these q, k and v; a mask of numbers is the bias."""
    if not is_score_mask(mask):
        return bias, mask
    if bias is not None:
        other = f"a bias of shape {checks.shape(bias)}" if isinstance(bias, Tensor) else repr(bias)
        raise ValueError(
            f"mask holds {mask.dtype}, numbers to be added to the scores, where {other} already adds its own; "
            "pass booleans, True = may attend, or leave the bias out"
        )
    _warn_of_zeros_and_ones(mask)
    shapes = [(t.values if isinstance(t, KVCache) else t).shape for t in inputs if t is not None]
    check_leading_axes(mask, (*max(shapes, key=len)[:-2], *mask.shape[-2:]))
    return mask, None


def _warn_of_zeros_and_ones(mask: Tensor) -> None:
    """Warns of numbers that look like booleans, judged by the first row: a look at all would take time."""
    if torch.compiler.is_compiling() or not values_are_readable(mask) or not mask.numel():
        return
    row = mask.detach()[(0,) * (mask.ndim - 1)][:_SAMPLE]
    if bool(row.amax() == 1) and bool(((row == 0) | (row == 1)).all()):
        warnings.warn(
            "mask holds the numbers 0 and 1, which are added to the scores and hide nothing; pass mask.bool() if 1 "
            "means that a query may attend, or bias=mask to add them",
            UserWarning,
            stacklevel=4,
        )


@dataclass(slots=True, eq=False)
class AttentionCall:
    """Projected tensors and terms of one attention. `slice` restricts it to some queries and keys and returns a call
    again.
    """

    q: Tensor  # "*b q d", before projection: the input of a bias
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
    group: int  # number of query heads per key head
    total: int | Tensor  # number of keys of the whole call, or per sample, "*b 1 1": input of a bias
    explicit_positions: Positions | None  # None: the queries are the last keys
    generator: torch.Generator | None = None  # of dropout and of a read that samples; None: torch's own
    votes: Tensor | None = None  # those of a cache, for a bias that depends on earlier rows

    def positions(self) -> Positions:
        if self.explicit_positions is not None:
            return self.explicit_positions
        return default_positions(self.q.shape[-2], self.keys.shape[-2], self.q.device)

    def weights(self) -> int:
        """The number of weights of the whole call."""
        return math.prod(self.batch) * self.queries.shape[-2] * self.keys.shape[-2]

    def expand_kv_heads(self, t: Tensor) -> Tensor:
        """Repeats every head of keys or values for the query heads that share it."""
        return t if self.group == 1 else t.repeat_interleave(self.group, dim=-3)

    def allowed(self) -> Tensor | None:
        """The mask as a boolean tensor that broadcasts to the scores."""
        return None if self.mask is None else insert_head_axes(self.mask.dense(*self.positions()), len(self.batch) + 2)

    def slice(self, rows: Rows, columns: Rows) -> "AttentionCall":
        """The same call for the queries `rows` and the keys `columns`, given by index."""
        i, j = self.positions()
        bias = self.bias
        if bias is not None and bias.reads_rows:
            bias = computed_bias(self)
        if isinstance(bias, TensorBias):
            bias = TensorBias(_cut(_cut(bias.values, -2, rows), -1, columns))
        queries = self.queries[..., rows, :]
        return replace(
            self,
            q=queries if self.q is self.queries else self.q[..., rows, :],
            queries=queries,
            keys=self.keys[..., columns, :],
            v=self.v[..., columns, :],
            bias=bias,
            mask=None if self.mask is None else self.mask.slice(rows, columns),
            explicit_positions=(i[..., rows], j[..., columns]),
        )


def _cut(t: Tensor, dim: int, index: Rows) -> Tensor:
    if t.shape[dim] == 1:
        return t
    return t[(..., index, slice(None)) if dim == -2 else (..., index)]


def scores(call: AttentionCall, compare: Compare | None = None) -> Tensor:  # -> "*b q k"
    """score(q, k) + bias, in float32 at least."""
    keys = call.expand_kv_heads(call.keys)
    s = compare_pairs(call.score, call.queries, keys) if compare is None else compare(call.queries, keys)
    # operands may need float64, as those of Distance do; their scores do not
    if s.dtype == torch.float64 and call.v.dtype != torch.float64:
        s = s.to(torch.float32)
    return s if call.bias is None else s + bias_numbers(call, s)


def bias_numbers(call: AttentionCall, s: Tensor) -> Tensor:  # "*b q k" -> "*b q k"
    """The numbers that the bias of a call adds to its scores s."""
    assert call.bias is not None
    if isinstance(call.bias, ScoreBias):
        if isinstance(call.bias, Selective) and call.votes is not None:
            return call.bias.behind(call.votes, s, call.allowed(), *call.positions())
        return call.bias.of_scores(call.q, s, call.allowed(), *call.positions())
    return call.bias(call.q, *call.positions(), call.total)


def computed_bias(call: AttentionCall) -> TensorBias:
    """The bias of all rows and heads of a call as a tensor, of which a part can be taken."""
    return TensorBias(bias_numbers(call, scores(replace(call, bias=None))))


def allowed_for(call: AttentionCall, s: Tensor) -> Tensor | None:
    """The mask; entries of −inf in a tensor bias count as masked."""
    allowed = call.allowed()
    if isinstance(call.bias, TensorBias) and not call.normalize.hides_infinite:
        is_finite = s > -torch.inf
        return is_finite if allowed is None else is_finite & allowed
    return allowed


def equation(
    call: AttentionCall,
    generator: torch.Generator | None = None,
    compare: Compare | None = None,
    replacement: Callable[[Tensor, Tensor | None], Tensor] | None = None,
) -> Attended:
    """weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

    `replacement` makes other weights of these and of the mask.
    """
    need, generator = call.need, call.generator if generator is None else generator
    s = scores(call, compare)
    allowed = allowed_for(call, s)
    weights = call.normalize.weights(s, allowed)
    weights = weights if replacement is None else replacement(weights, allowed)
    dropped = weights if call.dropout == 0.0 else drop(weights, call.dropout, generator)
    result = call.read.read(dropped, call.expand_kv_heads(call.v), generator)
    lse = call.normalize.lse(s, allowed) if need.lse and isinstance(call.normalize, Softmax) else None
    per_pair, per_query = (*call.batch, -1, -1), (*call.batch, -1)
    return Attended(
        result.out,
        weights.to(call.v.dtype).expand(per_pair) if need.weights else None,
        result.log_prob.expand(per_query) if need.log_prob and result.log_prob is not None else None,
        None if lse is None else lse.expand(per_query),
        None,
        entropy(weights).expand(per_query) if need.entropy else None,
        result.key_index.expand(per_query) if need.key_index and result.key_index is not None else None,
        _masked_scores(s, allowed).to(call.v.dtype).expand(per_pair) if need.scores else None,
    )


def _masked_scores(s: Tensor, allowed: Tensor | None) -> Tensor:
    """The scores, −inf where the mask hides a key."""
    return s if allowed is None else s.masked_fill(~allowed, -torch.inf)


def drop(weights: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Dropout of the weights  (Srivastava et al. 2014), from a generator that can be replayed."""
    if generator is None:
        return F.dropout(weights, p)
    if p == 1.0:
        return weights * 0.0
    keep = torch.empty_like(weights).bernoulli_(1 - p, generator=generator)
    return weights * keep / (1 - p)
