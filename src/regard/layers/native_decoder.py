"""Few tokens through all layers of a Transformer in one native call: a step of the decoder, or a short source."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.kv_cache import KVCache
from regard.attn.module_snapshot import derived
from regard.attn.multihead import MultiHead
from regard.attn.native_heads import are_native, can_step, dot_product_scale, has_plain_calls
from regard.attn.terms.position import Sinusoidal
from regard.kernels.decoder_step import DecoderWeights, addresses, decoder_step, encode
from regard.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Sublayer

# In larger batches of sources torch multiplies about as fast, and shares one sentence among threads.
_MOST_TOKENS = 512
# positions whose encodings are kept
_LONGEST = 512


def native_step(
    layers: nn.ModuleList,
    norm: nn.Module,
    x: Tensor,
    past: KVCache | None,
    sources: Sequence[KVCache],
    paths: Tensor | None,
    lengths: Tensor,
) -> tuple[Tensor, KVCache] | None:  # "b n d", past "b l h m d", paths "b n t", lengths "b" -> "b n d"
    """norm(h), h the last layer's output, and the longer cache; None if a layer is more than the kernel computes.

    The hypotheses of a sentence share a cache; `paths` are the columns of each one's past and of itself, None: all.
    """
    weights = derived((layers, norm), _weights) if can_step(x) else None
    if weights is None or x.dtype != weights.dtype or x.device.type != "cpu" or lengths.dtype != torch.long:
        return None
    b, count, d = x.shape
    width = d // weights.heads
    if past is None:
        nothing = x.new_empty(b, weights.layers, weights.heads, 0, width)
        past = KVCache(nothing, nothing)
    # all sources come from the same layers
    if past.keys.dtype != x.dtype or sources[0].keys.dtype != x.dtype or sources[0].keys.shape[1] != weights.heads:
        return None
    first, longer = len(past), past.reserve(count)
    out = decoder_step(
        x.contiguous(),
        weights,
        longer.entry,
        [source.entry for source in sources],
        None if paths is None else paths.contiguous(),
        first,
        lengths.contiguous(),
        len(sources[0]),
    )
    return out, longer


def native_encode(
    layers: nn.ModuleList, norm: nn.Module, x: Tensor, lengths: Tensor
) -> Tensor | None:  # "b s d", "b" -> "b s d"
    """norm(h) of an encoder whose tokens attend to the first `lengths` of their sentence; None if it cannot run."""
    if x.ndim != 3 or not 0 < len(x) * x.shape[1] <= _MOST_TOKENS or not can_step(x):
        return None
    weights = derived((layers, norm), _weights)
    if weights is None or x.dtype != weights.dtype or x.device.type != "cpu" or lengths.dtype != torch.long:
        return None
    return encode(x.contiguous(), weights, lengths.contiguous())


def stack_caches(caches: Sequence[KVCache | None]) -> KVCache | None:  # "b h m d" -> "b l h m d"
    """The caches of all layers in one; None before the first step."""
    some = [cache for cache in caches if cache is not None]
    if not some:
        return None
    return KVCache(torch.stack([cache.keys for cache in some], 1), torch.stack([cache.values for cache in some], 1))


def encode_position(x: Tensor, place: nn.Module, position: int) -> Tensor:  # "b n d" -> "b n d"
    """`place` added to tokens that all have one position; of sinusoids a table is kept."""
    if type(place) is Sinusoidal and position < _LONGEST and x.dtype == torch.float32 and can_step(x):
        table = _sinusoids(place.dim)
        if x.device == table.device and not place._forward_hooks and not place._forward_pre_hooks:
            return x + table[position]
    return place(x, torch.full((x.shape[1],), position, device=x.device))


@functools.cache
def _sinusoids(dim: int) -> Tensor:  # "p d"
    return Sinusoidal(dim).encoding(torch.arange(_LONGEST)).float()


def _weights(layers: nn.ModuleList, norm: nn.Module) -> DecoderWeights | None:
    """The addresses of the weights; None if a layer is not the plain one of Vaswani et al., or in training."""
    if not has_plain_calls(layers) or not has_plain_calls(norm) or not len(layers):
        return None
    parameters: list[Tensor | None] = []
    settings = set()
    for layer in layers:
        setting = _settings(layer)
        if setting is None:
            return None
        settings.add(setting)
        parameters += _layer_parameters(layer)  # type: ignore[arg-type]
    if len(settings) > 1:
        return None
    _, dim, heads, feed, norm_first, scale, eps = settings.pop()
    if type(norm) is nn.LayerNorm and norm.eps == eps and norm.normalized_shape == (dim,):
        parameters += [norm.weight, norm.bias]
    elif type(norm) is nn.Identity:
        parameters += [None, None]
    else:
        return None
    if not are_native(parameters):
        return None
    dtype = next(layers.parameters()).dtype
    return DecoderWeights(addresses(parameters), dtype, len(layers), heads, feed, norm_first, scale, eps)


def _settings(layer: nn.Module) -> tuple[type, int, int, int, bool, float, float] | None:
    """Kind, width, heads, width of the feed-forward network, place of the norm, scale and epsilon of a plain layer."""
    if type(layer) is DecoderLayer:
        attentions = [layer.self_attention, layer.cross_attention]
        around = [layer.around_self, layer.around_cross, layer.around_feed]
    elif type(layer) is EncoderLayer:
        attentions, around = [layer.attention], [layer.around_attention, layer.around_feed]
    else:
        return None
    feed = layer.feed
    if type(feed) is not FeedForward or type(feed.inner) is not nn.Linear or type(feed.outer) is not nn.Linear:
        return None
    dim, heads = feed.inner.in_features, attentions[0].heads
    scales = {_head_scale(attention, dim, heads) for attention in attentions}
    if len(scales) > 1 or None in scales or feed.activation is not torch.relu_:
        return None
    if any(not _is_plain_sublayer(sublayer, dim) for sublayer in around):
        return None
    epsilons, places = {sublayer.norm.eps for sublayer in around}, {sublayer.norm_first for sublayer in around}
    drops = [*(sublayer.dropout for sublayer in around), feed.dropout]
    if len(epsilons) > 1 or len(places) > 1 or any(drop.training and drop.p for drop in drops):
        return None
    sizes = dim, heads, feed.inner.out_features
    return type(layer), *sizes, places.pop(), scales.pop(), epsilons.pop()  # type: ignore[return-value]


def _head_scale(attention: nn.Module, dim: int, heads: int) -> float | None:
    """The scale of a multi-head layer of this width with a plain softmax of dot products and no mask of its own."""
    if type(attention) is not MultiHead or attention.rotate is not None:
        return None
    linears = (attention.query, attention.key, attention.value, attention.out)
    sizes = {
        attention.query.in_features,
        attention.query.out_features,
        attention.key.out_features,
        heads * attention.head_dim,
    }
    if any(type(linear) is not nn.Linear for linear in linears) or sizes != {dim} or attention.heads != heads:
        return None
    scale = dot_product_scale(attention.attention, attention.head_dim)
    return None if scale is None or attention.attention.mask is not None else scale


def _is_plain_sublayer(sublayer: nn.Module, dim: int) -> bool:
    norm = sublayer.norm
    return (
        type(sublayer) is Sublayer
        and type(norm) is nn.LayerNorm
        and norm.normalized_shape == (dim,)
        and norm.elementwise_affine
    )


def _layer_parameters(layer: DecoderLayer | EncoderLayer) -> list[Tensor | None]:
    """In the order of csrc/decoder_step.h; an encoder has no second attention."""
    feed: Any = layer.feed
    modules: list[nn.Module | None] = []
    if isinstance(layer, DecoderLayer):
        own, cross = layer.self_attention, layer.cross_attention
        modules += [layer.around_self.norm, own.query, own.key, own.value, own.out]
        modules += [layer.around_cross.norm, cross.query, cross.out]
    else:
        own = layer.attention
        modules += [layer.around_attention.norm, own.query, own.key, own.value, own.out, None, None, None]
    modules += [layer.around_feed.norm, feed.inner, feed.outer]
    return [None if module is None else module._parameters[name] for module in modules for name in ("weight", "bias")]
