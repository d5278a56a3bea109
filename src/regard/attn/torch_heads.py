"""MultiHead from nn.MultiheadAttention, and back: the same weights, the same function."""

import math

import torch
from torch import nn

from regard.attn.backends.dot_softmax import plain_scale
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.normalizer import Softmax, WithNullSlot
from regard.common import checks


@torch.no_grad()
def from_torch(heads: nn.MultiheadAttention) -> MultiHead:
    """The layer that computes what a module of torch computes, with copies of its weights; batch first, always."""
    checks.instance_of("heads", heads, nn.MultiheadAttention, "nn.MultiheadAttention(8, 2)")
    if heads.bias_k is not None:
        raise ValueError(
            "MultiHead has no place for the key and value that nn.MultiheadAttention(add_bias_kv=True) appends; build "
            "the module without them"
        )
    normalize = WithNullSlot() if heads.add_zero_attn else Softmax()
    layer = MultiHead(
        heads.embed_dim,
        heads.num_heads,
        key_dim=heads.kdim,
        value_dim=heads.vdim,
        attention=Attention(normalize=normalize, dropout=heads.dropout),
        bias=heads.in_proj_bias is not None,
    ).to(heads.out_proj.weight)
    for linear, weight in zip((layer.query, layer.key, layer.value), projection_weights(heads), strict=True):
        linear.weight.copy_(weight)
    if heads.in_proj_bias is not None:
        for linear, bias in zip((layer.query, layer.key, layer.value), heads.in_proj_bias.chunk(3), strict=True):
            linear.bias.copy_(bias)
    layer.out.load_state_dict(heads.out_proj.state_dict())
    return layer.train(heads.training)


@torch.no_grad()
def to_torch(layer: MultiHead) -> nn.MultiheadAttention:
    """The module of torch that computes what the layer computes, batch first; raises if torch has none."""
    reason = _without_module(layer)
    if reason is not None:
        raise ValueError(f"nn.MultiheadAttention has no {reason}; keep the layer of regard")
    assert isinstance(layer.attention, Attention)
    heads = nn.MultiheadAttention(
        layer.query.in_features,
        layer.heads,
        dropout=layer.attention.dropout,
        bias=layer.query.bias is not None,
        add_zero_attn=isinstance(layer.attention.normalize, WithNullSlot),
        kdim=layer.key.in_features,
        vdim=layer.value.in_features,
        batch_first=True,
    ).to(layer.out.weight)
    for weight, linear in zip(projection_weights(heads), (layer.query, layer.key, layer.value), strict=True):
        weight.copy_(linear.weight)
    if layer.query.bias is not None:
        heads.in_proj_bias.copy_(torch.cat([layer.query.bias, layer.key.bias, layer.value.bias]))
    heads.out_proj.load_state_dict(layer.out.state_dict())
    return heads.train(layer.training)


def projection_weights(heads: nn.MultiheadAttention) -> tuple[torch.Tensor, ...]:
    """The weights of queries, keys and values, as views."""
    if heads._qkv_same_embed_dim:
        return heads.in_proj_weight.chunk(3)
    return heads.q_proj_weight, heads.k_proj_weight, heads.v_proj_weight


def _without_module(layer: MultiHead) -> str | None:
    """The part of a layer that torch's module cannot hold; None if it can hold all of it."""
    attention = layer.attention
    if not isinstance(attention, Attention):
        return "attentions of their own for its heads"
    if layer.kv_heads != layer.heads:
        return "heads that share keys"
    if layer.heads * layer.head_dim != layer.query.in_features:
        return f"heads of width {layer.head_dim}, which is not dim / heads"
    if layer.head_value_dim != layer.head_dim:
        return f"values of width {layer.head_value_dim} per head beside keys of {layer.head_dim}"
    for part in layer.extra_parts:
        return f"place for {part!r}"
    normalize = attention.normalize
    has_slot = type(normalize) is WithNullSlot and isinstance(normalize.score, int | float) and normalize.score == 0
    inner = normalize.normalize if has_slot and isinstance(normalize, WithNullSlot) else normalize
    scale = plain_scale(attention.score, inner, attention.read, layer.head_dim)
    if scale is None or not math.isclose(scale, layer.head_dim**-0.5) or attention.bias is not None:
        return f"place for {attention!r}".replace("\n", " ")
    return None if attention.mask is None else f"place for the mask {attention.mask!r}"
