"""Layers of an encoder over packed texts: texts of different lengths one behind the other, without padding.

Products run on blocks of tokens, whatever their text; attention stays within each text. There is no gradient: a
training runs the layers themselves with the mask `Documents`, which is the same function.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.backends import trace_path
from regard.attn.module_snapshot import derived
from regard.attn.multihead import MultiHead
from regard.attn.native_heads import dot_product_scale, has_plain_calls, mode_reason
from regard.attn.quantized_linear import QuantizedLinear
from regard.attn.terms.rotary import Rotary
from regard.kernels.int8_linear import PANEL, Int8Matrix
from regard.kernels.linear import Weight, linear, linear_add, linear_gelu, pack_weight
from regard.kernels.ragged_attention import ragged_attention
from regard.layers.transformer import Activation, EncoderLayer, FeedForward, Sublayer

# Rows that are multiplied at once: more rows make products no faster, and hidden activations need more memory.
_BLOCK = 2048


Projection = nn.Linear | QuantizedLinear


class _PlainLayer(NamedTuple):
    """The parts of a plain layer."""

    projections: tuple[Projection, Projection, Projection]
    out: Projection
    inner: Projection
    outer: Projection
    norms: tuple[nn.LayerNorm, nn.LayerNorm]
    norm_first: bool
    activation: Activation
    rotate: Rotary | None
    heads: int
    scale: float


class LayerWeights(NamedTuple):
    """The weights of a plain layer; queries, keys and values are one product."""

    projections: Weight
    projections_bias: Tensor
    out: Weight
    inner: Weight
    outer: Weight


def pack_layers(layers: nn.ModuleList, rows: int) -> list[LayerWeights] | None:
    """Copies of all weights in the order in which products of this many rows read them, for several calls of
    `packed_layers` between which no weight changes; None if it cannot run these layers.
    """
    plan = derived((layers,), _plan)
    if plan is None or plan[0].norms[0].weight.device.type != "cpu":
        return None
    return [_weights(layer, functools.partial(pack_weight, rows=min(rows, _BLOCK))) for layer in plan]


def packed_layers(
    layers: nn.ModuleList,
    x: Tensor,
    lengths: Sequence[int],
    positions: Tensor,
    weights: Sequence[LayerWeights] | None = None,
) -> Tensor | None:  # "n d", positions "n" -> "n d"
    """The output of the last layer; text i has the next `lengths[i]` rows of x, which may be overwritten.

    None if a layer is more than products, norms and softmaxes of dot products, or if gradients, hooks or a recording
    are wanted: then run the layers themselves. `weights` are those of `pack_layers`.
    """
    reason = mode_reason(x)
    plan = derived((layers,), _plan) if reason is None else None
    if reason is None and plan is None:
        reason = (
            "a layer is more than products, norms and softmaxes of dot products (a rotation by the length of the text "
            "is more), drops activations, or has hooks"
        )
    elif plan is not None and (not x.is_cpu or any(layer.norms[0].weight.dtype != x.dtype for layer in plan)):
        reason = "x is not of the type of the weights, on a CPU"
    trace_path(layers, "packed", reason, "all layers on packed texts, with a native kernel per text")
    if reason is not None or plan is None:
        return None
    for n, layer in enumerate(plan):
        _run(layer, _weights(layer) if weights is None else weights[n], x, lengths, positions)
    return x


def _weights(layer: _PlainLayer, pack: Callable[[Tensor], Tensor] = Tensor.detach) -> LayerWeights:
    bias = torch.cat([each.bias for each in layer.projections])  # type: ignore[misc]

    def weight(linear: Projection) -> Weight:
        return pack(linear.weight) if isinstance(linear, nn.Linear) else linear.matrix

    return LayerWeights(
        _joined(layer.projections, pack), bias, *(weight(each) for each in (layer.out, layer.inner, layer.outer))
    )


def _joined(linears: Sequence[Projection], pack: Callable[[Tensor], Tensor]) -> Weight:
    """The weights of linear layers of one kind, one below the other."""
    first = linears[0]
    if isinstance(first, nn.Linear):
        return pack(torch.cat([each.weight for each in linears]))
    matrices = [each.matrix for each in linears if isinstance(each, QuantizedLinear)]
    packed, scale = torch.cat([each.packed for each in matrices]), torch.cat([each.scale for each in matrices])
    return Int8Matrix(packed, scale, first.in_features, first.is_float)


def _run(layer: _PlainLayer, weights: LayerWeights, x: Tensor, lengths: Sequence[int], positions: Tensor) -> None:
    """One layer, in place."""
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(x), _BLOCK)]
    bias = weights.projections_bias
    inputs = (_norm(layer.norms[0], x[rows]) if layer.norm_first else x[rows] for rows in blocks)
    parts = [linear(block, weights.projections) for block in inputs]
    qkv = parts[0] if len(parts) == 1 else torch.cat(parts)
    if layer.rotate is not None:
        qkv += bias
        both = qkv[:, : 2 * (qkv.shape[1] // 3)].unflatten(1, (2 * layer.heads, -1))  # "n 2h d"
        both.copy_(layer.rotate(both.transpose(0, 1), positions).transpose(0, 1))
    # the kernel adds the bias while it copies keys and values
    added = bias if layer.rotate is None else None
    attended = ragged_attention(qkv, lengths, layer.heads, layer.scale, bias=added)
    for rows in blocks:
        y = linear_add(attended[rows], weights.out, layer.out.bias, x[rows])  # type: ignore[arg-type]
        if not layer.norm_first:
            y = _norm(layer.norms[0], y)
        hidden = _hidden(layer, weights.inner, _norm(layer.norms[1], y) if layer.norm_first else y)
        y = linear_add(hidden, weights.outer, layer.outer.bias, y)  # type: ignore[arg-type]
        x[rows] = y if layer.norm_first else _norm(layer.norms[1], y)


def _norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _hidden(layer: _PlainLayer, weight: Weight, x: Tensor) -> Tensor:
    """The hidden activations of the feed-forward network."""
    bias, activation = layer.inner.bias, layer.activation
    if isinstance(activation, nn.GELU):
        return linear_gelu(x, weight, bias, activation.approximate)  # type: ignore[arg-type]
    return activation(linear(x, weight, bias))


def _plan(layers: nn.ModuleList) -> list[_PlainLayer] | None:
    if not len(layers) or not has_plain_calls(layers):
        return None
    plan = [_plain_layer(layer) for layer in layers]
    plain = [layer for layer in plan if layer is not None]
    return plain if len(plain) == len(plan) else None


def _plain_layer(layer: nn.Module) -> _PlainLayer | None:
    """The parts of a layer; None if one of them is of another kind, or drops activations."""
    if type(layer) is not EncoderLayer or type(layer.attention) is not MultiHead or type(layer.feed) is not FeedForward:
        return None
    attention, feed, around = layer.attention, layer.feed, (layer.around_attention, layer.around_feed)
    linears = (attention.query, attention.key, attention.value, attention.out, feed.inner, feed.outer)
    if any(type(linear) not in (nn.Linear, QuantizedLinear) or linear.bias is None for linear in linears):
        return None
    if len({(type(linear), getattr(linear, "is_float", None)) for linear in linears[:3]}) > 1:
        return None
    if any(isinstance(linear, QuantizedLinear) and linear.out_features % PANEL for linear in linears[:3]):
        return None  # panels of the three would not stand one behind the other
    if not isinstance(attention.attention, nn.Module) or attention.attention._modules.get("0") is not None:
        return None  # one attention per head
    scale = dot_product_scale(attention.attention, attention.head_dim)
    is_plain = scale is not None and attention.attention.mask is None and attention.kv_heads == attention.heads
    is_plain = is_plain and attention.head_value_dim == attention.head_dim
    is_plain = is_plain and all(part is attention.rotate for part in attention.extra_parts)
    # the packed texts would be rotated by the length of the longest
    is_plain = is_plain and (attention.rotate is None or not attention.rotate.depends_on_length)
    norms = tuple(sublayer.norm for sublayer in around)
    drops = (*(sublayer.dropout for sublayer in around), feed.dropout)
    if not is_plain or any(drop.training and drop.p for drop in drops):
        return None
    kinds = {*map(type, around), *map(type, norms)}
    if kinds != {Sublayer, nn.LayerNorm} or layer.residual not in ("post", "pre"):
        return None
    projections = (attention.query, attention.key, attention.value)
    return _PlainLayer(
        projections,
        attention.out,
        feed.inner,
        feed.outer,
        norms,  # type: ignore[arg-type]
        layer.around_attention.norm_first,
        feed.activation,
        attention.rotate,
        attention.heads,
        scale,  # type: ignore[arg-type]
    )
