"""Weighted sums by a softmax of dot products, as torch's kernels compute them: the predicate, the tensors of a call as
the kernels take them, and their result in the shape of the call.
"""

import torch
from torch import Tensor

from regard.attn.backends._flash_cpu import available, pad_to_same_width
from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.bias import TensorBias
from regard.attn.terms.learnable import per_head
from regard.attn.terms.normalizer import Normalizer, Softmax, WithNullSlot
from regard.attn.terms.read import Read, WeightedSum
from regard.attn.terms.score import Dot, Score
from regard.attn.terms.sequence_masks import Causal
from regard.common import checks
from regard.kernels.dispatch import is_known
from regard.kernels.torch_versions import kernel_bias, kernel_heads

_HALF = (torch.float16, torch.bfloat16)

# a mask or a bias of more numbers than this is computed at every call
MOST_KEPT = 1 << 14


def _softmax_of(normalize: Normalizer) -> Normalizer:
    """The normalizer inside of a null slot, or itself."""
    return normalize.normalize if type(normalize) is WithNullSlot else normalize


def terms_reason(score: Score, normalize: Normalizer, read: Read) -> str | None:
    """The reason why these terms are not a weighted sum by a softmax of dot products; None if they are."""
    if score.comparison != "dot":
        return f"{type(score).__name__} compares by {score.comparison_noun}, not by a dot product"
    if type(normalize) is not Softmax:
        return f"its kernel has only softmax, not {type(normalize).__name__}"
    if normalize.temperature is None:
        return "the temperature is trained, its kernel takes a fixed one"
    if not isinstance(read, WeightedSum):
        return f"its kernel only computes weighted sums, {type(read).__name__} selects one key"
    return None


def plain_scale(score: Score, normalize: Normalizer, read: Read, width: int) -> float | None:
    """The factor on q·k if these terms are softmax(scale · q kᵀ) v without a projection; None if they are more."""
    if type(score) is not Dot or terms_reason(score, normalize, read) is not None:
        return None
    assert isinstance(normalize, Softmax)
    return score.scale_of(width) / (normalize.temperature or 1.0)


def call_reason(call: AttentionCall, takes_null_slot: bool = False, score: Score | None = None) -> str | None:
    """`terms_reason` of a call, with `score` for its own, or that its kernel does not form what is requested."""
    normalize = _softmax_of(call.normalize) if takes_null_slot else call.normalize
    reason = terms_reason(score or call.score, normalize, call.read)
    if reason is None and call.bias is not None and call.bias.reads_scores:
        return f"{type(call.bias).__name__} reads the scores, which its kernel never forms"
    if reason is None and call.need.needs_weights:
        return "its kernel never forms the requested weights"
    return reason


def temperature(call: AttentionCall) -> float:
    normalize = _softmax_of(call.normalize)
    assert isinstance(normalize, Softmax)
    return normalize.temperature or 1.0


def scale(call: AttentionCall) -> float:
    return call.score.scale_of(call.queries.shape[-1]) / temperature(call)


def null_score(call: AttentionCall) -> Tensor | None:  # broadcasts to "b h q"
    """The score of the null slot beside those of the keys; None without a null slot."""
    if not isinstance(call.normalize, WithNullSlot):
        return None
    score, wide = call.normalize.score, checks.accumulate_dtype(call.queries.dtype)
    score = score if isinstance(score, Tensor) else torch.full((1, 1), score, dtype=wide, device=call.q.device)
    if score.numel() > 1:
        score = per_head(score, call.queries.expand(*call.batch, *call.queries.shape[-2:]), call.normalize)
    # without shared keys the kernels take a single leading axis, here that of heads, as samples
    is_first_axis = len(call.batch) == 1 and call.group == 1
    return score.to(wide).reshape((-1, 1, 1) if is_first_axis else (-1, 1)) / temperature(call)


def needs_grad(call: AttentionCall) -> bool:
    """Whether a gradient of the queries, keys or values is to be computed."""
    return torch.is_grad_enabled() and (call.queries.requires_grad or call.keys.requires_grad or call.v.requires_grad)


def bias_needs_grad(call: AttentionCall) -> bool:
    """Whether a gradient of the bias is to be computed."""
    bias = call.bias
    if bias is None or not torch.is_grad_enabled():
        return False
    if isinstance(bias, TensorBias):
        return bias.values.requires_grad
    return (bias.reads_query and call.q.requires_grad) or any(p.requires_grad for p in bias.parameters())


def is_corner_causal(call: AttentionCall) -> bool:
    """Whether the mask is the causality that the kernels count from the upper left corner.

    They multiply −inf by the scale, which must be positive.
    """
    if type(call.mask) is not Causal or call.explicit_positions is not None or call.bias is not None:
        return False
    return is_known(call.q.shape[-2] == call.keys.shape[-2]) and scale(call) > 0


def as_four_axes(t: Tensor, call: AttentionCall, heads: int) -> Tensor:  # "*b n m" -> "b h n m"
    """Two leading axes, as the kernels take them; the second keeps its `heads`, 1 serves all."""
    batch, last = call.batch, t.shape[-2:]
    if len(batch) == 0:
        return t[None, None]
    if len(batch) == 1:  # one axis: of heads if they share keys, otherwise of samples
        return t.expand(heads, *last).unsqueeze(0) if call.group > 1 else t.expand(*batch, *last).unsqueeze(1)
    t = t.expand(*batch[:-1], heads, *last)
    return t if len(batch) == 2 else t.flatten(0, len(batch) - 2)


def _heads(t: Tensor) -> int:
    return t.shape[-3] if t.ndim > 2 else 1


def kernel_dtype(call: AttentionCall) -> torch.dtype:
    """The dtype in which kernels get queries, keys and values."""
    wide = torch.promote_types(call.queries.dtype, call.keys.dtype)
    # scores project half types in float32; kernels for GPUs are fast for half types alone, and sum in float32
    is_widened = wide == torch.float32 and call.v.dtype in _HALF
    return call.v.dtype if is_widened and call.q.device.type != "cpu" else wide


def kernel_inputs(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one width and one dtype with two leading axes."""
    q, k, v = call.queries, call.keys, call.v
    if not q.dtype == k.dtype == v.dtype:
        dtype = kernel_dtype(call)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    q, k, v = pad_to_same_width(q, k, v)
    if len(call.batch) == 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return q, k, v
    heads = call.batch[-1] if call.batch else 1
    kv_heads = _heads(k) if _heads(k) == _heads(v) else heads
    q = as_four_axes(q, call, heads)
    return q, *kernel_heads(q, as_four_axes(k, call, kv_heads), as_four_axes(v, call, kv_heads))


def takes_inputs(call: AttentionCall) -> bool:
    """Whether a kernel reads q, k and v themselves: of one dtype and width, with two equal leading axes, without score
    parameters, and without a gradient to be computed.
    """
    q, k, v = call.q, call.keys, call.v
    return (
        type(call.score) is Dot
        and len(call.batch) == 2
        and q.shape[:-2] == k.shape[:-2] == v.shape[:-2] == call.batch
        and q.shape[-1] == v.shape[-1]
        and q.dtype == k.dtype == v.dtype
        and not needs_grad(call)
    )


def kernel_mask(call: AttentionCall) -> Tensor:  # "b h q k", any of the first two axes 1
    """Bias and mask as the one tensor that the kernels add: boolean without a bias."""
    allowed = call.allowed()
    if call.bias is None:
        assert allowed is not None
        return as_four_axes(allowed, call, _heads(allowed))
    bias = call.bias(call.q, *call.positions(), call.total)
    dtype = kernel_dtype(call)
    if bias.dtype != dtype and not (dtype in _HALF and available(bias) and bias.dtype == torch.float32):
        # only the kernel for CPUs adds a float32 bias to scores of half types; to float64 it adds other numbers
        bias = bias.to(dtype)
    bias = bias if temperature(call) == 1.0 else bias / temperature(call)
    bias = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
    return kernel_bias(as_four_axes(bias, call, _heads(bias)))


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
