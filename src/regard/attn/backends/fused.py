"""fused: torch's scaled_dot_product_attention, for every call that reduces to a dot product with softmax.

It handles the known pitfalls: unequal widths of keys and values leave the fast kernel (padded here), causality is
counted from the upper left corner (used only where that is correct), a bias that needs a gradient uses the slow kernel
(refused).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan
from regard.attn.backends._flash_cpu import Flash, available, pad_to_same_width
from regard.attn.call import Attended, AttentionCall
from regard.attn.call_tensors import take_tensors
from regard.attn.kv_cache import KVCache
from regard.attn.nonfinite import finite
from regard.attn.observer import current_observer
from regard.attn.terms.bias import Bias, TensorBias
from regard.attn.terms.mask import Causal
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import Dot
from regard.kernels.dispatch import autocast_disabled, choose_route, in_functorch_transform, is_autocasting

# a bias of more numbers than this should be computed block by block; off the CPU blocks are a loop of launches, so the
# bound there is a gigabyte
_DENSE, _DENSE_OFF_CPU = 1 << 24, 1 << 28


def plain_attention(
    q: object,
    k: object,
    v: object,
    score: object = None,
    normalize: object = None,
    read: object = None,
    mask: object = None,
) -> Tensor | None:
    """softmax(scale · q kᵀ) v without resolving a call, which takes longer than a small attention; None if it does not
    apply.

    Only for calls that need no check and no choice: one shape, one dtype, one device, no mask or a causal one, and
    terms that are the default ones or written out.
    """
    cache = k if isinstance(k, KVCache) else None
    if cache is not None:
        if v is not None or cache.positions is not None:
            return None
        k, v = cache.keys, cache.values
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor:
        return None
    shape = q.shape
    if k.shape != shape or v.shape != shape or q.dtype != k.dtype or q.dtype != v.dtype or len(shape) != 4:
        return None
    if not q.is_floating_point() or q.device != k.device or q.device != v.device or 0 in shape:
        return None
    if in_functorch_transform() or current_observer() is not None:
        return None
    scale = shape[-1] ** -0.5
    if score is not None or normalize is not None or read is not None:
        is_dot = score is None or (type(score) is Dot and (score.scale is None or type(score.scale) in (int, float)))
        is_softmax = normalize is None or (type(normalize) is Softmax and normalize.temperature is not None)
        if not is_dot or not is_softmax or not (read is None or type(read) is WeightedSum):
            return None
        scale = scale if score is None or score.scale is None else score.scale  # type: ignore[attr-defined]
        scale = scale if normalize is None else scale / normalize.temperature  # type: ignore[attr-defined]
    needs_grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if mask is None and not needs_grad:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    if choose_route(q, k, v) != "direct" or is_autocasting(q) or not available(q):
        return None
    # non-finite numbers behind the mask must not reach the output: then the call is resolved
    if mask is not None and not (finite(q) and (finite(k, v) if cache is None else cache.finite)):
        return None
    if not needs_grad:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return Flash.apply(q, k, v, [_whole(q, k, True)], None, scale, mask is not None)[0]


def not_dot_softmax(call: AttentionCall) -> str | None:
    """The reason why the call is not a weighted sum by a softmax of dot products; None if it is."""
    if call.score.comparison != "dot":
        return f"{type(call.score).__name__} compares by {call.score.comparison}, not by a dot product"
    if type(call.normalize) is not Softmax:
        return f"its kernel has only softmax, not {type(call.normalize).__name__}"
    if call.normalize.temperature is None:
        return "the temperature is trained, its kernel takes a fixed one"
    if not isinstance(call.read, WeightedSum):
        return f"its kernel only computes weighted sums, {type(call.read).__name__} selects one key"
    if call.need.needs_weights:
        return "its kernel never forms the requested weights"
    return None


def scale(call: AttentionCall) -> float:
    assert isinstance(call.normalize, Softmax)
    return call.score.scale_of(call.queries.shape[-1]) / (call.normalize.temperature or 1.0)


def unsupported_reason(call: AttentionCall) -> str | None:
    reason = not_dot_softmax(call)
    if reason is not None:
        return reason
    if call.bias is not None and torch.is_grad_enabled() and _bias_needs_grad(call.bias, call.q):
        return "the bias needs a gradient, which its fast kernel does not compute"
    if call.need.lse and (call.mask is not None or call.bias is not None):
        return "with a mask or a bias it does not return lse"
    if call.need.lse and not (_has_no_dropout(call) and available(call.q) and not needs_grad(call)):
        return "it returns lse only on a CPU, without dropout and without gradient"
    if call.dropout == 1.0:
        return "its kernel divides by the share of weights that dropout leaves, and none is left"
    if in_functorch_transform():
        return "torch.func has no rule for its kernel"
    if 0 in call.q.shape or 0 in call.keys.shape or 0 in call.v.shape:
        return "a tensor is empty, which its kernel does not take"
    return None


def needs_grad(call: AttentionCall) -> bool:
    """Whether a gradient of the queries, keys or values is to be computed."""
    return torch.is_grad_enabled() and (call.queries.requires_grad or call.keys.requires_grad or call.v.requires_grad)


def _bias_needs_grad(bias: Bias, q: Tensor) -> bool:
    if isinstance(bias, TensorBias):
        return bias.values.requires_grad
    return (bias.reads_query and q.requires_grad) or any(p.requires_grad for p in bias.parameters())


def _has_no_dropout(call: AttentionCall) -> bool:
    return call.dropout == 0.0 and not torch.compiler.is_compiling()


def skip_reason(call: AttentionCall) -> str | None:
    if call.dropout and available(call.q):
        return "with dropout torch's CPU kernel forms all weights"
    if call.bias is not None and call.weights() > (_DENSE if available(call.q) else _DENSE_OFF_CPU):
        return f"the bias would be one tensor of {call.weights()} numbers"
    return None


def describe(call: AttentionCall) -> str:
    description = "torch's scaled_dot_product_attention"
    if call.queries.shape[-1] != call.v.shape[-1]:
        description += f", widths made equal ({call.queries.shape[-1]} and {call.v.shape[-1]})"
    if call.mask is not None and not _is_corner_causal(call):
        description += ", with the mask as a dense tensor"
    return description


def _is_corner_causal(call: AttentionCall) -> bool:
    """Whether the mask is the causality that the kernel counts from the upper left corner."""
    is_square = call.explicit_positions is None and call.q.shape[-2] == call.keys.shape[-2]
    return type(call.mask) is Causal and is_square and call.bias is None


def as_four_axes(t: Tensor, call: AttentionCall, heads: int) -> Tensor:  # "*b n m" -> "b h n m"
    """Two leading axes, as the kernel takes them; the second keeps its `heads`, 1 serves all."""
    batch, last = call.batch, t.shape[-2:]
    if len(batch) == 0:
        return t[None, None]
    if len(batch) == 1:  # one axis: of heads if they share keys, otherwise of samples
        return t.expand(heads, *last).unsqueeze(0) if call.group > 1 else t.expand(*batch, *last).unsqueeze(1)
    t = t.expand(*batch[:-1], heads, *last)
    return t if len(batch) == 2 else t.flatten(0, len(batch) - 2)


def _heads(t: Tensor) -> int:
    return t.shape[-3] if t.ndim > 2 else 1


def kernel_inputs(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one width and one dtype with two leading axes."""
    q, k, v = call.queries, call.keys, call.v
    if not q.dtype == k.dtype == v.dtype:  # scores that project half types do so in float32
        dtype = torch.promote_types(q.dtype, k.dtype)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    q, k, v = pad_to_same_width(q, k, v)
    if len(call.batch) == 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return q, k, v
    heads = call.batch[-1] if call.batch else 1
    kv_heads = _heads(k) if _heads(k) == _heads(v) else heads
    return as_four_axes(q, call, heads), as_four_axes(k, call, kv_heads), as_four_axes(v, call, kv_heads)


def additive_mask(call: AttentionCall) -> Tensor:
    """Bias and mask as the one tensor that the kernel adds: boolean without a bias."""
    allowed = call.allowed()
    if call.bias is None:
        assert allowed is not None
        return allowed
    bias = call.bias(call.q, *call.positions(), call.total)
    if bias.dtype != call.queries.dtype and not (available(bias) and bias.dtype == torch.float32):
        bias = bias.to(call.queries.dtype)  # only the kernel for CPUs adds a float32 bias to scores of half types
    if isinstance(call.normalize, Softmax) and call.normalize.temperature not in (None, 1.0):
        bias = bias / call.normalize.temperature
    return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)


def run(call: AttentionCall) -> Attended:
    q, k, v = kernel_inputs(call)
    causal = call.mask is not None and _is_corner_causal(call)
    mask = None
    if not causal and (call.mask is not None or call.bias is not None):
        mask = additive_mask(call)
        mask = as_four_axes(mask, call, _heads(mask))
    if _has_no_dropout(call) and available(q) and (call.need.lse or needs_grad(call)):
        numbers = None if mask is None else _float_mask(mask, q, k)
        template, tensors = take_tensors(None if numbers is None else _ConstantBias(numbers))
        span = _whole(q, k, mask is None)
        return to_attended(call, *Flash.apply(q, k, v, [span], template, scale(call), causal, *tensors))
    has_shared_heads = q.shape[1] != k.shape[1]
    with autocast_disabled(q.device):  # the call has the dtype of autocast already, where its terms allow it
        out = F.scaled_dot_product_attention(
            q, k, v, mask, call.dropout, causal, scale=scale(call), enable_gqa=has_shared_heads
        )
    return to_attended(call, out, None)


def _whole(q: Tensor, k: Tensor, full: bool) -> BlockSpan:
    """The one span of all queries and keys."""
    return BlockSpan(None, slice(0, q.shape[-2]), slice(0, k.shape[-2]), full)


def _float_mask(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The mask as the flash kernel takes it: numbers added to the scores (b, h, q, k)."""
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    return mask.expand(*mask.shape[:-2], q.shape[-2], k.shape[-2])


@dataclass
class _ConstantBias:
    """The same numbers for every span."""

    numbers: Tensor

    def __call__(self, span: BlockSpan) -> Tensor:
        return self.numbers


def to_attended(call: AttentionCall, out: Tensor, lse: Tensor | None) -> Attended:
    """The kernel's output in the shape and the dtype of the call."""
    if out.dtype != call.v.dtype:
        out = out.to(call.v.dtype)
    if out.shape[-1] != call.v.shape[-1]:
        out = out[..., : call.v.shape[-1]]
    if len(call.batch) != 2:
        out = out.reshape(*call.batch, *out.shape[-2:])
    if lse is None or not call.need.lse:
        return Attended(out)
    return Attended(out, lse=lse.reshape(*call.batch, -1))
