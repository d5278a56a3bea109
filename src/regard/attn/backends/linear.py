"""linear: factored sums, φ(q) (Σ_j φ(k_j) v_jᵀ) / φ(q) Σ_j φ(k_j)  (Katharopoulos et al. 2020, eq. 5).

Without a normalizer, Identity(), the sums are not divided: q (kᵀ v) instead of (q kᵀ) v.

Causal calls run chunk by chunk: the full matrix inside a chunk, the running sum over all earlier chunks.
"""

import torch
from torch import Tensor

from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.mask import conjuncts
from regard.attn.terms.normalizer import Identity, Sum, divide_by_greatest
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.sequence_masks import Causal, Lengths
from regard.attn.terms.tiles import insert_head_axes
from regard.common.checks import accumulate_dtype
from regard.kernels.dispatch import values_are_readable

_CHUNK = 64


def unsupported_reason(call: AttentionCall) -> str | None:
    if call.score.comparison != "dot":
        return f"{type(call.score).__name__} compares by {call.score.comparison_noun}, not by a dot product"
    if not isinstance(call.normalize, (Sum, Identity)):
        return f"only sums can be factored, {type(call.normalize).__name__} needs the whole row"
    if not isinstance(call.read, WeightedSum):
        return f"it only computes weighted sums, {type(call.read).__name__} selects one key"
    if call.bias is not None:
        return "a bias per pair cannot be factored"
    if call.dropout:
        return "it never forms the weights that dropout needs"
    if call.need.needs_weights or call.need.lse:
        return "it never forms the requested weights"
    for leaf in conjuncts(call.mask):
        if not (
            isinstance(leaf, Lengths)
            or (type(leaf) is Causal and call.explicit_positions is None and call.q.shape[-2] == call.keys.shape[-2])
        ):
            return f"{leaf!r} is neither Lengths nor Causal over as many queries as keys"
        if type(leaf) is Causal and isinstance(call.q.shape[-2], torch.SymInt):
            return f"it splits causal sums into chunks of {_CHUNK} keys, and torch.export does not know their number"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    if torch.compiler.is_compiling():
        return None  # compiled code would hold for some numbers of keys alone
    pairs, width = call.q.shape[-2] * call.keys.shape[-2], call.queries.shape[-1]
    if pairs < (call.q.shape[-2] + call.keys.shape[-2]) * min(width, 64):
        return "the weight matrix is smaller than the sums that would replace it"
    return None


def describe(call: AttentionCall) -> str:
    return "sums of keys times values: linear in time and memory"


def run(call: AttentionCall) -> Attended:
    dtype = torch.promote_types(accumulate_dtype(call.v.dtype), call.queries.dtype)
    q, k, v = call.queries.to(dtype), call.expand_kv_heads(call.keys).to(dtype), call.expand_kv_heads(call.v).to(dtype)
    for leaf in conjuncts(call.mask):
        if isinstance(leaf, Lengths):
            allowed = insert_head_axes(leaf.dense(*call.positions()), len(call.batch) + 2)  # (*b, 1, k)
            k = k.masked_fill(~allowed.transpose(-1, -2), 0.0)
    if isinstance(call.normalize, Identity):
        return _attended(call, _sums(call, q * call.score.scale_of(q.shape[-1]), k, v))
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # the last column sums the weights
    out = _sums(call, q, k, v) if values_are_readable(v) else None
    if out is None or not _are_normal(out[..., -1]):
        out = _sums(call, divide_by_greatest(q), divide_by_greatest(k, (-2, -1)), v)
    total = out[..., -1:]
    empty = total == 0
    return _attended(call, (out[..., :-1] / total.masked_fill(empty, 1.0)).masked_fill(empty, 0.0))


def _attended(call: AttentionCall, out: Tensor) -> Attended:
    return Attended(out.expand(*call.batch, *out.shape[-2:]).to(call.v.dtype))


def _sums(call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_j (φ(q_i)·φ(k_j)) v_j of every query."""
    causal = any(type(leaf) is Causal for leaf in conjuncts(call.mask))
    return _causal(q, k, v) if causal else q @ (k.transpose(-1, -2) @ v)


def _are_normal(totals: Tensor) -> bool:
    """Whether all totals can be divided by: zero, or neither denormal nor infinite."""
    with torch.no_grad():
        return bool(((totals == 0) | ((totals >= torch.finfo(totals.dtype).tiny) & (totals < torch.inf))).all())


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[-2]
    missing = -n % _CHUNK
    q, k, v = (torch.nn.functional.pad(t, (0, 0, 0, missing)).unflatten(-2, (-1, _CHUNK)) for t in (q, k, v))
    within = ((q @ k.transpose(-1, -2)).tril()) @ v
    sums = k.transpose(-1, -2) @ v  # (*b, chunks, c, v)
    # the sum of the earlier chunks alone: a subtraction would let a large later key cancel it
    before = torch.nn.functional.pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0)).cumsum(-3)
    return (within + q @ before).flatten(-3, -2)[..., :n, :]
