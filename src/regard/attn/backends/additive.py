"""additive: scores v · tanh(a + b) without the (q, k, hidden) tensor, by tanh(a+b) = 1 − 2/(1 + e^{2a} e^{2b})."""

import functools

from torch import Tensor

from regard.attn.call import Attended, AttentionCall, equation
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import TanhScore
from regard.kernels import additive, native_library
from regard.kernels.dispatch import in_functorch_transform
from regard.kernels.precision import widen


def unsupported_reason(call: AttentionCall) -> str | None:
    if not isinstance(call.score, TanhScore):
        return f"{type(call.score).__name__} compares by {call.score.comparison_noun}, not by a tanh"
    if in_functorch_transform():
        return "torch.func cannot look into its kernel"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    return None


def _fits_one_kernel(call: AttentionCall) -> bool:
    """Whether one kernel can compute score, mask, softmax and weighted sum."""
    soft = type(call.normalize) is Softmax and call.normalize.temperature is not None
    return (
        soft
        and isinstance(call.read, WeightedSum)
        and call.bias is None
        and call.dropout == 0.0
        and not call.need.needs_weights
    )


def describe(call: AttentionCall) -> str:
    unavailable = native_library.unavailable_reason()
    implementation = (
        f"native kernels ({native_library.instruction_set()})"
        if unavailable is None
        else f"the same algorithm in torch ({unavailable})"
    )
    if call.q.device.type != "cpu":
        implementation = f"the same algorithm in torch (native kernels are for CPUs, q is on {call.q.device})"
    return implementation + (
        ", score, mask and softmax in one" if _fits_one_kernel(call) else ", scores by the kernel, the rest as written"
    )


def run(call: AttentionCall) -> Attended:
    assert isinstance(call.score, TanhScore)
    queries = widen(call.queries)
    energy = call.score.energy.to(queries.dtype)
    if not _fits_one_kernel(call):
        return equation(call, compare=functools.partial(_scores, energy=energy))
    assert isinstance(call.normalize, Softmax)
    keys, v = call.expand_kv_heads(call.keys), call.expand_kv_heads(call.v)
    out, lse = additive.attend(queries, keys, energy / (call.normalize.temperature or 1.0), v, call.allowed())
    return Attended(out.to(call.v.dtype), lse=lse if call.need.lse else None)


def _scores(queries: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    return additive.scores(widen(queries), keys, energy)
