"""Plans: what types and shapes decide about a call, its checks and its backend, is decided once and kept."""

from collections.abc import Hashable
from types import ModuleType, NoneType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.backends import choose
from regard.attn.call import NOTHING, AttentionCall, AttentionInputs, Terms
from regard.attn.call_builder import build_call, project_tensors
from regard.attn.kv_cache import KVCache
from regard.attn.nonfinite import finite, hide_nonfinite
from regard.attn.terms.bias import ALiBi
from regard.attn.terms.mask import And, BooleanMask, Mask, as_mask
from regard.attn.terms.normalizer import Entmax, Sigmoid, Softmax, Sparsemax
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import Additive, Bilinear, Concat, Dot, NormedAdditive
from regard.attn.terms.sequence_masks import Causal, Lengths, Window
from regard.common import checks
from regard.kernels.dispatch import choose_route, is_autocasting, values_are_readable

# terms that decide nothing but by their class and the number below, unless they have parameters
_DECIDED_BY_CLASS = frozenset({Dot, ALiBi, Softmax, Sparsemax, Entmax, Sigmoid, WeightedSum, NoneType})
# scores that project; their parameters decide beside their class whether a gradient is to be computed
_PROJECTING = frozenset({Additive, Bilinear, Concat, NormedAdditive})
_MOST_PLANS = 512


class CallPlan(NamedTuple):
    """What holds for every call of one signature."""

    backend: ModuleType
    batch: tuple[int, ...]
    group: int
    has_mask: bool  # False too if its mask hides nothing
    kept: Any  # what `run_kept` of the backend needs; None: it has none


_PLANS: dict[Hashable, CallPlan] = {}


class PreparedCall(NamedTuple):
    """A checked call, the backend that runs it, and the rows that see a NaN or inf (None: no row)."""

    call: AttentionCall
    backend: ModuleType
    nonfinite_rows: Tensor | None


def run_kept(signature: Hashable, inputs: AttentionInputs, terms: Terms) -> Tensor | None:
    """The output of a small call whose backend has kept what its signature decides; None: it is to be prepared."""
    plan = _PLANS.get(signature)
    if plan is None or plan.kept is None:
        return None
    q, (k, v) = inputs.q, _keys_and_values(inputs)
    if plan.has_mask and not finite(*((q, k) if v is k else (q, k, v))):
        return None
    out: Tensor | None = plan.backend.run_kept(plan.kept, q, k, v, inputs.mask, terms)
    return out


def prepare_call(
    signature: Hashable | None, inputs: AttentionInputs, terms: Terms, backend: str | None
) -> PreparedCall:
    """The call with its backend: by the plan of its signature, or checked and chosen anew."""
    plan = None if signature is None else _PLANS.get(signature)
    if plan is not None:
        return _follow(plan, inputs, terms)
    call, nonfinite_rows = build_call(inputs, terms)
    chosen = choose(call, backend)
    if signature is not None and call.q.shape[-2] <= call.keys.shape[-2]:  # more queries than keys may be warned of
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        keep = getattr(chosen, "keep", None)
        kept = None if keep is None or isinstance(inputs.k, KVCache) else keep(call)
        _PLANS[signature] = CallPlan(chosen, call.batch, call.group, call.mask is not None, kept)
    return PreparedCall(call, chosen, nonfinite_rows)


def signature_of(inputs: AttentionInputs, terms: Terms, backend: str | None) -> Hashable | None:
    """Types, shapes and modes of a call in eager mode; None if anything else may decide."""
    q, mask, (score, bias, normalize, read, dropout) = inputs.q, inputs.mask, terms
    if inputs.positions is not None or inputs.need is not NOTHING or dropout or torch.compiler.is_compiling():
        return None
    cache = inputs.k if isinstance(inputs.k, KVCache) else None
    if cache is not None and (inputs.v is not None or cache.positions is not None):
        return None
    k, v = _keys_and_values(inputs)
    for term in (score, bias, normalize, read):
        if type(term) in _DECIDED_BY_CLASS and not getattr(term, "_parameters", None):
            continue
        if type(term) not in _PROJECTING or torch.is_grad_enabled():
            return None
    # the checks tell what is wrong with anything but tensors, or with nested ones, which have no shape
    if type(q) is not Tensor or k is None or choose_route(k, v) != "direct" or is_autocasting(q):
        return None
    if q.is_nested or k.is_nested or v.is_nested or (cache is not None and v.dtype != q.dtype):
        return None
    if q.is_cuda and torch.cuda.is_current_stream_capturing():  # which backends may run is another question there
        return None
    mask_signature: Hashable = None
    if mask is not None:
        mask_signature = _mask_signature(mask)
        if mask_signature is None:
            return None
    grads = torch.is_grad_enabled() and (q.requires_grad, k.requires_grad, v.requires_grad)
    tensors = (q.shape, q.dtype, q.device, k.shape, k.dtype, k.device, v.shape, v.dtype, v.device)
    kinds = (type(score), type(bias), type(normalize), type(read))
    numbers = (
        score.scale if type(score) is Dot else None,
        normalize.temperature if type(normalize) is Softmax else None,
    )
    return tensors, grads, cache is None, mask_signature, kinds, numbers, backend


def _keys_and_values(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    if isinstance(inputs.k, KVCache):
        return inputs.k.keys, inputs.k.values
    return inputs.k, inputs.k if inputs.v is None else inputs.v


def _mask_signature(mask: Mask | Tensor) -> Hashable | None:
    """What a mask decides beside its values; None if that is not known."""
    kind = type(mask)  # a subclass may decide otherwise
    if isinstance(mask, Window) and kind in (Window, Causal):
        return mask.left, mask.right, kind
    if isinstance(mask, Lengths) and kind is Lengths:
        return mask.lengths.shape, mask.lengths.dtype, mask.lengths.device, mask.longest
    if isinstance(mask, BooleanMask) and kind is BooleanMask:
        return mask.allowed.shape, mask.allowed.device, BooleanMask
    if isinstance(mask, Tensor) and kind is Tensor and mask.dtype == torch.bool:
        return mask.shape, mask.device, BooleanMask
    if isinstance(mask, And) and kind is And:
        parts = tuple(map(_mask_signature, mask.masks))
        return None if None in parts else parts
    return None


def _follow(plan: CallPlan, inputs: AttentionInputs, terms: Terms) -> PreparedCall:
    """The call of a signature that was checked before. Only numbers are read: a NaN behind the mask is hidden."""
    q, (k, v) = inputs.q, _keys_and_values(inputs)
    score, bias, normalize, read, dropout = terms
    fitted, nonfinite_rows = None, None
    if plan.has_mask and inputs.mask is not None:
        fitted = as_mask(inputs.mask).fit(plan.batch, q.shape[-2], k.shape[-2], q.device)
        is_finite = isinstance(inputs.k, KVCache) and values_are_readable(q) and inputs.k.finite
        q, k, v, nonfinite_rows = hide_nonfinite(q, k, v, fitted, None, plan.batch, is_finite)
    assert not isinstance(bias, Tensor)
    is_cached = isinstance(inputs.k, KVCache)
    if type(score) is not Dot:
        score.check(q, None if is_cached else k)
        checks.same_dtype_and_device(score, q)
    q, queries, keys, v = project_tensors(q, k, v, score, bias, plan.batch, is_cached)
    terms_and_mask = score, bias, fitted, normalize, read, dropout
    call = AttentionCall(q, queries, keys, v, *terms_and_mask, NOTHING, plan.batch, plan.group, v.shape[-2], None)
    return PreparedCall(call, plan.backend, nonfinite_rows)
