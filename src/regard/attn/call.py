"""The call: one attention, checked and resolved, as backends get it; and the equation itself, written once."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn import checks
from regard.attn.kv_cache import KVCache
from regard.attn.nonfinite import default_positions, may_read, without_hidden
from regard.attn.terms.bias import Added, Bias
from regard.attn.terms.mask import Mask, Rows, as_mask, lead
from regard.attn.terms.normalizer import Normalizer, Softmax
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
    given: (
        tuple[Tensor, Tensor] | None
    )  # positions of queries "*b q" and keys "*b k"; None: the queries are the last keys

    def positions(self) -> tuple[Tensor, Tensor]:
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


def resolve(
    q: Tensor,
    k: "Tensor | KVCache",
    v: Tensor | None,
    score: Score | None,
    bias: Bias | Tensor | None,
    mask: Mask | Tensor | None,
    normalize: Normalizer | None,
    read: Read | None,
    dropout: float,
    positions: tuple[Tensor, Tensor] | None,
    need: Need,
    look: bool = True,
) -> "tuple[AttentionCall, Tensor | None]":
    """The call, checked, and which rows look at something that is not a number (None: none, or none looked for).

    The work of every call: kept short, because a small attention takes less time than a few checks.
    """
    score = DOT if score is None else score
    normalize = SOFTMAX if normalize is None else normalize
    read = MIX if read is None else read
    checks.term("score", score, Score, "Dot()")
    checks.term("normalize", normalize, Normalizer, "Softmax()")
    checks.term("read", read, Read, "WeightedSum()")
    memory = k if isinstance(k, KVCache) else None
    kept = memory is not None
    if isinstance(k, KVCache):
        k, v, positions = _remembered(k, v, q, positions)
    elif v is None:
        v = k
    check_tensors(q, k, v, kept)
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}; try dropout=0.1")
    score.check(q, None if kept else k)
    if not autocasting(q):
        checks.kin(score, q)
    count = v.shape[-2]
    batch, group = batch_of(q, k, v)
    if positions is not None:
        check_positions(positions, batch, q.shape[-2], count, q.device)
    felt = None
    total: int | Tensor = count
    if mask is not None:
        mask = as_mask(mask).fit(batch, q.shape[-2], count, q.device)
        if look:
            sound = memory is not None and may_read(q) and memory.finite
            q, k, v, felt = without_hidden(q, k, v, mask, positions, batch, sound)
    if isinstance(bias, Tensor):
        bias = _added(bias, batch, q, count)
    elif bias is not None:
        checks.term("bias", bias, Bias, "ALiBi(heads) or a tensor")
    if bias is not None:
        q = q.expand(*batch, *q.shape[-2:])  # a bias knows heads and samples by the axes of q
        if bias.reads_total and mask is not None and count:
            total = _end(mask, positions or default_positions(q.shape[-2], count, q.device), len(batch) + 2)
    queries = score.queries(q if bias is None else bias.content(q))
    keys = k if kept else score.keys(k)
    if kept and score.comparison != "own" and queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"the memory's keys {checks.shape(keys)} are not as wide as the queries {checks.shape(queries)} "
            f"of {score!r}; remember keys by the layer that looks at them"
        )
    if autocasting(q):
        kind = torch.get_autocast_dtype(q.device.type)
        queries, keys, v = queries.to(kind), keys.to(kind) if keys.is_floating_point() else keys, v.to(kind)
    return AttentionCall(
        q, queries, keys, v, score, bias, mask, normalize, read, dropout, need, batch, group, total, positions
    ), felt


def _end(mask: Mask, positions: tuple[Tensor, Tensor], axes: int) -> Tensor:  # -> "*b 1 1"
    """How many keys each sample has: one more than the last place that one of its queries may look at."""
    seen = lead(mask.dense(*positions), axes).any(-2, keepdim=True)
    places = lead(positions[1].unsqueeze(-2), axes) + 1
    return (seen * places).amax(-1, keepdim=True)


def autocasting(t: Tensor) -> bool:
    kind = t.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def exactly(device: torch.device) -> AbstractContextManager[object]:
    """Products in the types that they are written in: under autocast even float32 would be multiplied in halves."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def _remembered(
    memory: KVCache, v: Tensor | None, q: Tensor, positions: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    if v is not None:
        raise ValueError(
            f"v must be None when k is a Memory, which has its own values, got v {checks.shape(v)}; leave v out"
        )
    if positions is None and memory.positions is not None:
        here = q.shape[-2]
        if len(memory) < here:
            raise ValueError(
                f"positions must be given: {here} queries cannot be the last of {len(memory)} remembered keys"
            )
        positions = (memory.positions[..., len(memory) - here :], memory.positions)
    return memory.keys, memory.values, positions


def check_tensors(q: Tensor, k: Tensor, v: Tensor, kept: bool) -> None:
    checks.floating("q", q)
    if not kept:
        checks.floating("k", k)
    checks.floating("v", v)
    if q.device != k.device or q.device != v.device:
        raise ValueError(
            f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}; "
            f"move them with .to({str(q.device)!r})"
        )
    unlike = (q.dtype != k.dtype and not kept) or q.dtype != v.dtype
    if unlike and not autocasting(q):
        raise TypeError(
            f"q, k and v must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype}; cast them with .to({q.dtype})"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must have as many positions, got k {checks.shape(k)} and v {checks.shape(v)}; axis -2 counts them"
        )


def batch_of(q: Tensor, k: Tensor, v: Tensor) -> tuple[tuple[int, ...], int]:
    """The leading axes of the scores, and how many query heads share a key head."""
    lead_q, lead_k, lead_v = tuple(q.shape[:-2]), tuple(k.shape[:-2]), tuple(v.shape[:-2])
    if lead_q == lead_k == lead_v:
        return lead_q, 1
    heads, shared = lead_q[-1:], lead_k[-1:]
    group = 1
    if heads and shared == lead_v[-1:] and 1 < sum(shared) < heads[0] and heads[0] % shared[0] == 0:
        group = heads[0] // shared[0]
        lead_k, lead_v = lead_k[:-1] + heads, lead_v[:-1] + heads
    try:
        return tuple(torch.broadcast_shapes(lead_q, lead_k, lead_v)), group
    except RuntimeError:
        raise ValueError(
            f"the leading axes of q {checks.shape(q)}, k {checks.shape(k)} and v {checks.shape(v)} do not agree; "
            "make them equal or 1, or let the heads of q be a multiple of the heads of k and v"
        ) from None


def check_positions(
    positions: tuple[Tensor, Tensor], batch: tuple[int, ...], queries: int, keys: int, device: torch.device
) -> None:
    i, j = positions
    fits = all(
        t.ndim - 1 <= len(batch) and all(n in (1, m) for n, m in zip(t.shape[:-1], batch, strict=False)) for t in (i, j)
    )
    if not fits or i.shape[-1] != queries or j.shape[-1] != keys:
        raise ValueError(
            f"positions must be those of {queries} queries and {keys} keys, "
            f"got {checks.shape(i)} and {checks.shape(j)}; "
            f"pass (i, j) with one position each, and before them the first axes of the batch {batch} or none"
        )
    for t in positions:
        if t.is_floating_point():
            raise TypeError(f"positions must be integers, got {t.dtype}; call .long() on them")
        checks.same_device("positions", t, device)


def _added(bias: Tensor, batch: tuple[int, ...], q: Tensor, keys: int) -> Added:
    whole = (*batch, q.shape[-2], keys)
    fits = bias.ndim <= len(whole) and all(
        n in (1, m) for n, m in zip(reversed(bias.shape), reversed(whole), strict=False)
    )
    checks.same_device("bias", bias, q.device)
    if not bias.is_floating_point():
        raise TypeError(f"bias must be a floating tensor, got {bias.dtype}; a boolean mask is passed as mask=")
    if not fits:
        raise ValueError(
            f"bias of shape {checks.shape(bias)} does not broadcast to the scores {whole}; "
            "its last axes are (heads, queries, keys)"
        )
    return Added(bias)
