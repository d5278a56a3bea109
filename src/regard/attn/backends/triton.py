"""triton: kernels for GPUs, for tanh scores under a softmax and for dot products under sparsemax or entmax 1.5.

Nobody has measured them on a device, so they run only for `backend="triton"`. None forms a weight; each has a gradient.
"""

import torch

from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.normalizer import Entmax, Softmax, Sparsemax
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import TanhScore
from regard.kernels import triton
from regard.kernels.triton.configs import most_width, padded_width

_ALPHAS = (1.5, 2.0)


def _is_sparse(call: AttentionCall) -> bool:
    kind = type(call.normalize)
    return kind is Sparsemax or (isinstance(call.normalize, Entmax) and call.normalize.alpha in _ALPHAS)


def unsupported_reason(call: AttentionCall) -> str | None:
    reason = triton.unavailable_reason(call.q.device)
    if reason is not None:
        return reason
    is_tanh, is_soft = isinstance(call.score, TanhScore), type(call.normalize) is Softmax
    if not (is_tanh and is_soft) and not (call.score.comparison == "dot" and _is_sparse(call)):
        return (
            "it has kernels for tanh scores with Softmax, and for dot products with Sparsemax or Entmax(1.5), not for "
            f"{type(call.score).__name__} with {call.normalize!r}"
        )
    if is_soft and call.normalize.temperature is None:
        return "the temperature is trained, its kernel takes a fixed one"
    if not isinstance(call.read, WeightedSum):
        return f"its kernel only computes weighted sums, {type(call.read).__name__} selects one key"
    if call.bias is not None:
        return "its kernels add no bias"
    if call.dropout or call.need.needs_weights:
        return "its kernels never form the weights" + (" that dropout needs" if call.dropout else "")
    if torch.float64 in (call.queries.dtype, call.keys.dtype, call.v.dtype):
        return "it computes in float32, the call in float64"
    width, most = max(call.queries.shape[-1], call.v.shape[-1]), most_width("additive" if is_soft else "sparse")
    if width > most:
        return f"its tiles hold rows of up to {most} numbers, and a row has {width}"
    rows = max(call.queries.shape[-2], call.keys.shape[-2])
    if rows * padded_width(width) >= 1 << 31:
        return f"it counts to 2^31 numbers per sample, and {rows} rows of {padded_width(width)} are more"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    return triton.UNMEASURED


def describe(call: AttentionCall) -> str:
    kernel = "tanh scores and softmax" if isinstance(call.score, TanhScore) else "scores and their threshold"
    return f"Triton kernels, {kernel} in tiles, without weights in memory"


def run(call: AttentionCall) -> Attended:
    keys, v = call.expand_kv_heads(call.keys), call.expand_kv_heads(call.v)
    if isinstance(call.score, TanhScore):
        from regard.kernels.triton import additive

        assert isinstance(call.normalize, Softmax)
        energy = call.score.energy / (call.normalize.temperature or 1.0)
        out, lse = additive.attend(call.queries, keys, energy, v, call.allowed())
        return Attended(out.to(call.v.dtype), lse=lse if call.need.lse else None)
    from regard.kernels.triton import sparse

    squared = isinstance(call.normalize, Entmax) and call.normalize.alpha == 1.5
    scale = call.score.scale_of(call.queries.shape[-1])
    return Attended(sparse.attend(call.queries, keys, v, call.allowed(), scale, squared).to(call.v.dtype))
