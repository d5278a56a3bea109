"""fused: torch's scaled_dot_product_attention, for every call that reduces to a dot product with softmax.

It handles the known pitfalls: unequal widths of keys and values leave the fast kernel (padded here), causality is
counted from the upper left corner (used only where that is correct), a bias that needs a gradient uses the slow kernel
(refused).
"""

from types import NoneType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.backends._flash_cpu import Flash, available, float_mask, whole_span
from regard.attn.call import DOT, MIX, SOFTMAX, Attended, AttentionCall, Terms
from regard.attn.call_tensors import take_tensors
from regard.attn.kv_cache import KVCache
from regard.attn.module_snapshot import has_hooks
from regard.attn.nonfinite import finite
from regard.attn.observer import observer_or_trace
from regard.attn.terms.bias import ALiBi, Bias
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer, Softmax, WithNullSlot
from regard.attn.terms.read import Read
from regard.attn.terms.score import Score
from regard.attn.terms.sequence_masks import Causal, Window
from regard.kernels.dispatch import autocast_disabled, choose_route, in_functorch_transform, is_autocasting

# a bias of more numbers than this should be computed block by block; off the CPU blocks are a loop of launches, so the
# bound there is a gigabyte
_DENSE, _DENSE_OFF_CPU = 1 << 24, 1 << 28
# queries times this, up to the width of the keys, are few
_FEW = 8
# the classes of normalizers and masks of a plain attention
_SOFTMAX, _CORNER = (NoneType, Softmax), (NoneType, Causal)


def plain_attention(
    q: object,
    k: object,
    v: object,
    score: Score | None = None,
    normalize: Normalizer | None = None,
    read: Read | None = None,
    mask: Mask | Tensor | None = None,
) -> Tensor | None:
    """softmax(scale · q kᵀ) v without resolving a call, which takes longer than a small attention; None if it does not
    apply.

    Only for calls that need no check and no choice: one shape, one dtype, one device, no mask or a causal one, and
    terms that are the default ones or written out.
    """
    if type(normalize) not in _SOFTMAX or type(mask) not in _CORNER:
        return None
    cache = k if isinstance(k, KVCache) else None
    if cache is not None:
        if v is not None or cache.positions is not None:
            return None
        k, v = cache.keys, cache.values
    elif v is None:
        v = k
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor:
        return None
    shape, dtype, device = q.shape, q.dtype, q.device
    if k.shape != shape or v.shape != shape or k.dtype != dtype or v.dtype != dtype or len(shape) != 4:
        return None
    if not dtype.is_floating_point or device != k.device or device != v.device or 0 in shape:
        return None
    if in_functorch_transform() or observer_or_trace() is not None:
        return None
    scale: float | None = shape[-1] ** -0.5
    if score is not None or normalize is not None or read is not None:
        terms = (
            DOT if score is None else score,
            SOFTMAX if normalize is None else normalize,
            MIX if read is None else read,
        )
        scale = dot_softmax.plain_scale(*terms, shape[-1])
        if scale is None or (mask is not None and scale <= 0):
            return None
    needs_grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if mask is None and not needs_grad:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    if choose_route(q, k, v) != "direct" or is_autocasting(q) or not available(q):
        return None
    # non-finite numbers behind the mask must not reach the output: then the call is resolved
    if mask is not None and not (finite(q, k, v) if cache is None else finite(q) and cache.finite):
        return None
    if not needs_grad:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return Flash.apply(q, k, v, None, [whole_span(q, k)], None, scale, mask is not None)[0]


class KeptBias(NamedTuple):
    """The biases of a small call as one tensor, and the slopes that they are made of."""

    slopes: list[float]
    numbers: Tensor
    scale: float


def keep(call: AttentionCall) -> KeptBias | None:
    """The biases of ALiBi, under no mask or one of positions, for later calls of the same signature."""
    slopes = _slopes(call.bias)
    if slopes is None or not isinstance(call.mask, Window | None) or call.weights() > dot_softmax.MOST_KEPT:
        return None
    if not call.q.is_cpu or not dot_softmax.takes_inputs(call):
        return None
    return KeptBias(slopes, dot_softmax.kernel_mask(call), dot_softmax.scale(call))


def run_kept(kept: KeptBias, q: Tensor, k: Tensor, v: Tensor, mask: object, terms: Terms) -> Tensor | None:
    if _slopes(terms.bias) != kept.slopes:
        return None
    return F.scaled_dot_product_attention(q, k, v, kept.numbers, scale=kept.scale)


def _slopes(bias: Bias | Tensor | None) -> list[float] | None:
    """The slopes if the bias is what they alone make."""
    if type(bias) is not ALiBi or has_hooks(bias) or "forward" in bias.__dict__:
        return None
    slopes = bias.slopes
    return slopes.tolist() if slopes.is_cpu and not slopes.requires_grad else None


def unsupported_reason(call: AttentionCall) -> str | None:
    reason = dot_softmax.call_reason(call, takes_null_slot=True)
    if reason is not None:
        return reason
    has_null_slot = isinstance(call.normalize, WithNullSlot)
    if has_null_slot and not (_has_no_dropout(call) and available(call.q)):
        return "it adds a null slot only on a CPU, without dropout, not compiled"
    if dot_softmax.bias_needs_grad(call):
        return "the bias needs a gradient, which its fast kernel does not compute"
    if call.need.lse and (call.mask is not None or call.bias is not None):
        return "with a mask or a bias it does not return lse"
    if call.need.lse and not (_has_no_dropout(call) and available(call.q) and not dot_softmax.needs_grad(call)):
        return "it returns lse only on a CPU, without dropout and without gradient"
    if call.dropout and call.generator is not None:
        return "its kernel samples dropout from torch's own generator, and takes no other"
    if call.dropout == 1.0:
        return "its kernel divides by the share of weights that dropout leaves, and none is left"
    if in_functorch_transform():
        return "torch.func has no rule for its kernel"
    if 0 in call.q.shape or 0 in call.keys.shape or 0 in call.v.shape:
        return "a tensor is empty, which its kernel does not take"
    return None


def _has_no_dropout(call: AttentionCall) -> bool:
    return call.dropout == 0.0 and not torch.compiler.is_compiling()


def skip_reason(call: AttentionCall) -> str | None:
    if call.dropout and available(call.q):
        return "with dropout torch's CPU kernel forms all weights"
    widths = {call.queries.shape[-1], call.v.shape[-1]}
    if len(widths) > 1 and _FEW * call.q.shape[-2] <= max(widths) and available(call.q) and not call.need.lse:
        return "keys and values of one width would be copies, which cost more than the weights of few queries"
    if call.bias is not None and call.weights() > (_DENSE if available(call.q) else _DENSE_OFF_CPU):
        return f"the bias would be one tensor of {call.weights()} numbers"
    return None


def describe(call: AttentionCall) -> str:
    description = "torch's scaled_dot_product_attention"
    if call.queries.shape[-1] != call.v.shape[-1]:
        description += f", widths made equal ({call.queries.shape[-1]} and {call.v.shape[-1]})"
    if call.mask is not None and not dot_softmax.is_corner_causal(call):
        description += ", with the mask as a dense tensor"
    if isinstance(call.normalize, WithNullSlot):
        description += ", and the null slot by its log-sum-exp"
    return description


def run(call: AttentionCall) -> Attended:
    q, k, v = dot_softmax.kernel_inputs(call)
    causal, scale = dot_softmax.is_corner_causal(call), dot_softmax.scale(call)
    has_mask = not causal and (call.mask is not None or call.bias is not None)
    mask = dot_softmax.kernel_mask(call) if has_mask else None
    sink = dot_softmax.null_score(call)
    needs_lse = sink is not None or call.need.lse or dot_softmax.needs_grad(call)
    if needs_lse and _has_no_dropout(call) and available(q):
        numbers = None if mask is None else float_mask(mask, q, k)
        template, tensors = take_tensors(numbers)
        spans = [whole_span(q, k)]
        return dot_softmax.to_attended(call, *Flash.apply(q, k, v, sink, spans, template, scale, causal, *tensors))
    has_shared_heads = q.shape[1] != k.shape[1]
    with autocast_disabled(q.device):  # the call has the dtype of autocast already, where its terms allow it
        out = F.scaled_dot_product_attention(
            q, k, v, mask, call.dropout, causal, scale=scale, enable_gqa=has_shared_heads
        )
    return dot_softmax.to_attended(call, out, None)
