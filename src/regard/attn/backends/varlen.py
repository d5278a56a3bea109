"""varlen: torch's flash attention for packed documents, for padded and packed batches in half precision on a GPU.

softmax(scale · q kᵀ) v of dot products. The tokens that the mask leaves are packed behind each other, and the kernel
computes each document by itself: it never reads padding, and no mask is formed. A query that sees no key is left out.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.backends._packing import PackedDocuments, mask_parts, packings
from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.sequence_masks import Causal
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled, choose_route, has_values
from regard.kernels.torch_versions import PACKS_DOCUMENTS, VARLEN_SINCE

# the widest head of its kernel, whose width is a multiple of the step
_WIDEST, _STEP = 256, 8
# below this many weights packing launches more than one dense mask costs
_SMALL = 1 << 20
_HALF = (torch.float16, torch.bfloat16)

# of packed q "t h d", k "u g d", v "u g d", the packing and the scale: the output, "t h d", and its lse, "h t"
Kernel = Callable[[Tensor, Tensor, Tensor, PackedDocuments, float], tuple[Tensor, Tensor]]


def flash_attention(q: Tensor, k: Tensor, v: Tensor, packing: PackedDocuments, scale: float) -> tuple[Tensor, Tensor]:
    """torch's kernel."""
    from torch.nn.attention import varlen

    (_, ends, longest), (_, key_ends, longest_keys), window = packing
    out, lse = varlen.varlen_attn(
        *(q, k, v, ends, key_ends, longest, longest_keys),
        return_aux=varlen.AuxRequest(lse=True),
        scale=scale,
        window_size=window,
        enable_gqa=True,
    )
    return out, lse


def unsupported_reason(call: AttentionCall) -> str | None:
    if call.q.device.type != "cuda":
        return f"its kernel is for GPUs, and q is on {call.q.device}"
    return call_reason(call) or device_reason(call.q.device)


def device_reason(device: torch.device) -> str | None:
    """The reason of the GPU and of torch; only for tensors with values, behind which there is a GPU."""
    if torch.version.hip is not None:
        return "its kernel was written for GPUs of NVIDIA, and torch is built for ROCm"
    if not PACKS_DOCUMENTS:
        return (
            f"its kernel takes shared heads and windows from torch {VARLEN_SINCE} on, and this is {torch.__version__}"
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        return "its kernel needs a GPU of compute capability 8.0 or newer, and this has {}.{}".format(*capability)
    if torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured, and it reads how many tokens there are"
    return None


def call_reason(call: AttentionCall) -> str | None:
    """The reason of the call alone, on any device."""
    reason = dot_softmax.call_reason(call)
    if reason is not None:
        return reason
    if call.bias is not None or call.dropout:
        return f"its kernel has no {'dropout' if call.bias is None else 'bias'}"
    if call.mask is None:
        return "there is no mask that leaves tokens out"
    reason = _mask_reason(call)
    if reason is not None:
        return reason
    if not call.queries.dtype == call.keys.dtype == call.v.dtype or call.queries.dtype not in _HALF:
        return f"its kernel takes float16 or bfloat16, not {call.queries.dtype}"
    width = max(call.queries.shape[-1], call.v.shape[-1])
    if width > _WIDEST:
        return f"its kernel takes a width of at most {_WIDEST} per head, not {width}"
    if dot_softmax.scale(call) <= 0:
        return "its kernel needs a positive scale"
    if 0 in (*call.queries.shape, *call.keys.shape, *call.v.shape):
        return "a tensor is empty, which its kernel does not take"
    if call.need.lse and dot_softmax.needs_grad(call):
        return "its lse has no gradient"
    if not has_values(call.q) or choose_route(call.queries, call.keys, call.v) != "direct":
        return "it packs by values: not compiled, traced or transformed"
    return None


def _mask_reason(call: AttentionCall) -> str | None:
    parts = mask_parts(call.mask)
    if parts is None:
        return f"it takes Lengths or Documents, each also & Causal, not {call.mask!r}"
    # shared keys take the last axis for heads
    if not (call.group > 1) < len(call.batch) <= 2:
        return "it takes samples, or samples and heads, as the leading axes"
    if call.explicit_positions is not None:
        return "positions are given, and it counts queries as the last of the keys"
    if parts.band is None:
        return None
    if call.queries.shape[-2] != call.keys.shape[-2]:
        return f"under {parts.band!r} it takes as many queries as keys"
    if parts.documents is not None and parts.documents.queries is not parts.documents.ids:
        return f"under {parts.band!r} queries and keys must be of the same documents"
    if type(parts.band) is Causal:
        return None
    if parts.documents is not None:
        return "a window counts positions, and a document may have gaps"
    if parts.lengths or parts.band.right != 0:
        return "under a window, padding behind the tokens sees a part of them"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    if call.weights() < _SMALL:
        return f"only {call.weights()} weights: a dense mask is faster than packing"
    return None


def describe(call: AttentionCall) -> str:
    return "torch's varlen_attn over the tokens that the mask leaves, packed"


def run(call: AttentionCall, kernel: Kernel = flash_attention) -> Attended:
    inputs = dot_softmax.kernel_inputs(call)
    samples, heads, rows, _ = inputs[0].shape
    q, k, v = map(_tokens, inputs)
    scale = dot_softmax.scale(call)
    out = torch.zeros_like(q)
    wide = checks.accumulate_dtype(q.dtype)
    lse = torch.full((len(q), heads), -torch.inf, dtype=wide, device=q.device) if call.need.lse else None
    parts = mask_parts(call.mask)
    assert parts is not None
    packed_documents = packings(parts, samples, rows, len(k) // samples)
    if not packed_documents:  # zeros, whose gradients are zeros
        out = out + sum(t[:0].sum() for t in (q, k, v))
    with autocast_disabled(q.device):  # the call has the dtype of autocast already
        for packing in packed_documents:
            tokens, key_tokens = packing.queries.tokens, packing.keys.tokens
            packed = kernel(_take(q, tokens), _take(k, key_tokens), _take(v, key_tokens), packing, scale)
            out = packed[0] if tokens is None else out.index_copy(0, tokens, packed[0])
            if lse is not None:
                lse = packed[1].mT if tokens is None else lse.index_copy(0, tokens, packed[1].mT)
    out = out.unflatten(0, (samples, rows)).transpose(1, 2)
    return dot_softmax.to_attended(call, out, None if lse is None else lse.unflatten(0, (samples, rows)).mT)


def _tokens(t: Tensor) -> Tensor:  # "b h n d" -> "b·n h d"
    """The tokens as the kernel loads them, 16 bytes at a time."""
    t = F.pad(t, (0, -t.shape[-1] % _STEP)) if t.shape[-1] % _STEP else t
    t = t.transpose(1, 2).flatten(0, 1)
    is_aligned = t.stride(-1) == 1 and not any(n % _STEP for n in (t.storage_offset(), *t.stride()[:-1]))
    return t if is_aligned else t.clone(memory_format=torch.contiguous_format)


def _take(t: Tensor, tokens: Tensor | None) -> Tensor:
    return t if tokens is None else t.index_select(0, tokens)
