"""nn.MultiheadAttention on the equation, with other terms: [head₁; …; head_h] W_O, by its own weights."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import DOT, MIX, NOTHING, SOFTMAX, AttentionInputs, Need, Terms
from regard.attn.functional import attend_inputs
from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.normalizer import WithNullSlot
from regard.attn.torch_heads import projection_weights
from regard.interop.swapped_terms import SwappedTerms
from regard.interop.undo import Undo

_TERMS = "_regard_terms"


def swap_heads(undo: Undo, model: nn.Module, heads: nn.MultiheadAttention, terms: SwappedTerms) -> None:
    """Lets a module of torch compute its attention by the equation, also inside nn.TransformerEncoder."""
    if heads.bias_k is not None:
        raise ValueError(
            "swap has no term for the key and value that nn.MultiheadAttention(add_bias_kv=True) appends; leave this "
            "module out of layers="
        )
    undo.set(heads, _TERMS, terms.over(heads.__dict__.get(_TERMS)))
    undo.set(heads, "forward", partial(forward, heads))
    # torch's fast path of a whole encoder layer calls no module in it, but gives way to hooks
    undo.then(heads.register_forward_pre_hook(_nothing).remove)
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(module is heads for module in encoder.modules()):
            undo.set(encoder, "use_nested_tensor", False)


def _nothing(module: nn.Module, args: tuple[Any, ...]) -> None:
    pass


def forward(
    heads: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """nn.MultiheadAttention.forward: masks are True where a key is hidden, or numbers that are added."""
    if is_causal and attn_mask is None:
        raise ValueError(
            "is_causal=True says that attn_mask is causal, and there is none; give attn_mask, or swap in "
            "mask=regard.Causal()"
        )
    is_single = query.ndim == 2
    inputs = [query, key, value]
    if is_single:
        inputs = [t.unsqueeze(0) for t in inputs]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    elif not heads.batch_first:
        inputs = [t.transpose(0, 1) for t in inputs]
    q, k, v = (t.unflatten(-1, (heads.num_heads, -1)).transpose(1, 2) for t in _projected(heads, *inputs))
    mask, bias = _masks(heads, q, attn_mask, key_padding_mask)
    normalize = WithNullSlot(SOFTMAX) if heads.add_zero_attn else SOFTMAX
    dropout = heads.dropout if heads.training else 0.0
    need = Need(weights=True) if need_weights else NOTHING
    terms = Terms(DOT, bias, normalize, MIX, dropout)
    swapped: SwappedTerms = heads.__dict__[_TERMS]
    attended = attend_inputs(*swapped.apply(AttentionInputs(q, k, v, mask, None, need), terms, heads.training), None)
    out = heads.out_proj(attended.out.transpose(1, 2).flatten(-2))
    weights = attended.weights
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if is_single:
        return out.squeeze(0), None if weights is None else weights.squeeze(0)
    return out if heads.batch_first else out.transpose(0, 1), weights


def _projected(heads: nn.MultiheadAttention, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:  # "b n d" each
    weights = projection_weights(heads)
    biases = (None, None, None) if heads.in_proj_bias is None else heads.in_proj_bias.chunk(3)
    return [F.linear(t, weight, bias) for t, weight, bias in zip((q, k, v), weights, biases, strict=True)]


def _masks(
    heads: nn.MultiheadAttention, q: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None
) -> tuple[Mask | None, Tensor | None]:  # attn_mask "q k" or "b·h q k", key_padding_mask "b k"
    """Both masks as a mask of what is allowed, and as a bias."""
    if attn_mask is not None:
        attn_mask = attn_mask.unflatten(0, (-1, heads.num_heads)) if attn_mask.ndim == 3 else attn_mask[None, None]
    mask: Mask | None = None
    bias: Tensor | None = None
    for mask_or_bias in (attn_mask, None if key_padding_mask is None else key_padding_mask[:, None, None]):
        if mask_or_bias is None:
            continue
        if mask_or_bias.dtype == torch.bool:
            allowed = BooleanMask(~mask_or_bias)
            mask = allowed if mask is None else mask & allowed
        else:
            mask_or_bias = mask_or_bias.to(q.dtype)
            bias = mask_or_bias if bias is None else bias + mask_or_bias
    return mask, bias
