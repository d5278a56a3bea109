"""Few tokens through all layers of a Transformer in one native call: a step of the decoder, or a short source."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.kv_cache import KVCache
from regard.attn.module_snapshot import derived
from regard.attn.multihead import MultiHead
from regard.attn.native_heads import (
    MOST_ROWS,
    are_native_bytes,
    can_step,
    dot_product_scale,
    has_plain_calls,
    is_plain_linear,
    is_plain_norm,
)
from regard.attn.quantized_linear import QuantizedLinear
from regard.attn.terms.position import Sinusoidal
from regard.kernels.decoder_step import DecoderWeights, addresses, decoder_step, encode, stack_kernel, stack_step
from regard.kernels.native_library import has_kernel
from regard.layers.gelu import is_tanh_gelu
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
    if weights is None or weights.gelu or not _fit(weights, x, lengths) or len(sources) != weights.layers:
        return None
    b, count, d = x.shape
    width = d // weights.heads
    if past is None:
        nothing = x.new_empty(b, weights.layers, weights.heads, 0, width)
        past = KVCache(nothing, nothing)
    # all sources come from the same layers
    source = (b, weights.heads, len(sources[0]), width)
    if not _holds(past, x, (b, weights.layers, weights.heads, len(past), width)) or not _holds(sources[0], x, source):
        return None
    entries = [source.entry for source in sources]
    if None in entries:
        return None
    first, longer = len(past), past.reserve(count)
    assert longer.entry is not None
    out = decoder_step(
        x.contiguous(),
        weights,
        longer.entry,
        entries,  # type: ignore[arg-type]
        None if paths is None else paths.contiguous(),
        first,
        lengths.contiguous(),
        len(sources[0]),
    )
    return out, longer


def native_stack_step(
    layers: nn.ModuleList, norm: nn.Module, x: Tensor, pasts: Sequence[KVCache | None], allowed: Tensor | None = None
) -> tuple[Tensor, tuple[KVCache, ...]] | None:  # "b 1 d", "b h m d" each, bool "b m+1" -> "b 1 d"
    """norm(h) of one token per sequence that attends to its past, and the longer caches; None: it cannot run.

    `allowed` marks the keys of the past, and behind them its own, that each sequence attends to; None: all.
    """
    if x.ndim != 3 or x.shape[1] != 1 or not 0 < len(x) <= MOST_ROWS or not can_step(x):
        return None
    weights = derived((layers, norm), _weights)
    if weights is None or not has_kernel(stack_kernel(weights, allowed)):
        return None
    if x.dtype != weights.dtype or x.device.type != "cpu" or x.shape[2] != weights.dim:
        return None
    if len(pasts) != weights.layers or type(layers[0]) is not EncoderLayer:
        return None
    shape = (len(x), weights.heads, 0 if pasts[0] is None else len(pasts[0]), weights.dim // weights.heads)
    empty = x.new_empty(shape) if pasts[0] is None else None
    caches = [KVCache(empty, empty) if past is None and empty is not None else past for past in pasts]
    if any(cache is None or cache.positions is not None or not _holds(cache, x, shape) for cache in caches):
        return None
    if allowed is not None:
        if allowed.dtype != torch.bool or allowed.device != x.device or allowed.shape != (len(x), shape[2] + 1):
            return None
        allowed = allowed.contiguous()
    longer = [cache.reserve(1) for cache in caches if cache is not None]
    entries = [cache.entry for cache in longer if cache.entry is not None]
    if len(entries) != len(longer):
        return None
    return stack_step(x.contiguous(), weights, entries, shape[2] + 1, allowed), tuple(longer)


def native_encode(
    layers: nn.ModuleList, norm: nn.Module, x: Tensor, lengths: Tensor
) -> Tensor | None:  # "b s d", "b" -> "b s d"
    """norm(h) of an encoder whose tokens attend to the first `lengths` of their sentence; None if it cannot run."""
    if x.ndim != 3 or not 0 < len(x) * x.shape[1] <= _MOST_TOKENS or not can_step(x):
        return None
    weights = derived((layers, norm), _weights)
    if weights is None or weights.gelu or not _fit(weights, x, lengths):
        return None
    return encode(x.contiguous(), weights, lengths.contiguous())


def _fit(weights: DecoderWeights, x: Tensor, lengths: Tensor) -> bool:  # "b n d", "b"
    """Whether the tokens and lengths are what the kernel reads beside these weights."""
    return (
        x.dtype == weights.dtype
        and x.device.type == lengths.device.type == "cpu"
        and x.shape[2] == weights.dim
        and lengths.dtype == torch.long
        and lengths.shape == x.shape[:1]
    )


def _holds(cache: KVCache, x: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether keys and values have this shape, and the type and device of x."""
    return all(t.shape == shape and t.dtype == x.dtype and t.device == x.device for t in (cache.keys, cache.values))


def stack_caches(caches: Sequence[KVCache | None]) -> KVCache | None:  # "b h m d" -> "b l h m d"
    """The caches of all layers in one; None before the first step."""
    present = [cache for cache in caches if cache is not None]
    if not present:
        return None
    return KVCache(
        torch.stack([cache.keys for cache in present], 1), torch.stack([cache.values for cache in present], 1)
    )


def encode_position(x: Tensor, place: nn.Module, position: int) -> Tensor:  # "b n d" -> "b n d"
    """`place` added to tokens that all have one position; of sinusoids a table is kept."""
    if type(place) is Sinusoidal and position < _LONGEST and x.dtype == torch.float32 and can_step(x):
        table = _sinusoids(place.dim)
        if x.device == table.device and has_plain_calls(place):
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
    scales: list[Tensor | None] = []
    settings = set()
    for layer in layers:
        setting = _settings(layer)
        if setting is None:
            return None
        settings.add(setting)
        modules = _layer_modules(layer)  # type: ignore[arg-type]
        parameters += [_weight_or_bias(module, name) for module in modules for name in ("weight", "bias")]
        scales += [each for module in modules for each in (_scales(module), None)]
    if len(settings) > 1:
        return None
    _, dim, heads, feed, norm_first, scale, eps, gelu = settings.pop()
    if is_plain_norm(norm, dim) and norm.eps == eps:
        parameters += [norm._parameters["weight"], norm._parameters["bias"]]
    elif type(norm) is nn.Identity:
        parameters += [None, None]
    else:
        return None
    kinds = {module.is_float for module in layers.modules() if isinstance(module, QuantizedLinear)}
    if len(kinds) > 1 or not are_native_bytes(parameters, scales):
        return None
    dtype = next(layers.parameters()).dtype
    sizes = (dim, len(layers), heads, feed, norm_first, scale, eps, gelu)
    if not kinds:
        return DecoderWeights(addresses(parameters), dtype, *sizes)
    return DecoderWeights(addresses(parameters), dtype, *sizes, addresses(scales), kinds.pop())


def _settings(layer: nn.Module) -> tuple[type, int, int, int, bool, float, float, bool] | None:
    """Kind, width, heads, inner width, place of the norm, scale, epsilon of a plain layer, and whether it has gelu."""
    if type(layer) is DecoderLayer:
        attentions = [layer.self_attention, layer.cross_attention]
        around = [layer.around_self, layer.around_cross, layer.around_feed]
    elif type(layer) is EncoderLayer:
        attentions, around = [layer.attention], [layer.around_attention, layer.around_feed]
    else:
        return None
    feed = layer.feed
    if type(feed) is not FeedForward or type(feed.inner) not in (nn.Linear, QuantizedLinear):
        return None
    hidden, dim, heads = feed.inner.out_features, feed.inner.in_features, attentions[0].heads
    if not is_plain_linear(feed.inner, (hidden, dim)) or not is_plain_linear(feed.outer, (dim, hidden)):
        return None
    scales = {_head_scale(attention, dim, heads) for attention in attentions}
    activation = feed.activation
    is_gelu = isinstance(activation, nn.GELU) and is_tanh_gelu(activation)
    if len(scales) > 1 or None in scales or not (is_gelu or activation is torch.relu_):
        return None
    if any(not _is_plain_sublayer(sublayer, dim) for sublayer in around):
        return None
    epsilons, places = {sublayer.norm.eps for sublayer in around}, {sublayer.norm_first for sublayer in around}
    drops = [*(sublayer.dropout for sublayer in around), feed.dropout]
    if len(epsilons) > 1 or len(places) > 1 or any(drop.training and drop.p for drop in drops):
        return None
    sizes = dim, heads, hidden
    return type(layer), *sizes, places.pop(), scales.pop(), epsilons.pop(), is_gelu  # type: ignore[return-value]


def _head_scale(attention: nn.Module, dim: int, heads: int) -> float | None:
    """The scale of a multi-head layer of this width with a plain softmax of dot products and no mask of its own."""
    if type(attention) is not MultiHead or attention.rotate is not None:
        return None
    source = attention.key.in_features
    shapes = {"query": (dim, dim), "key": (dim, source), "value": (dim, source), "out": (dim, dim)}
    if not all(is_plain_linear(getattr(attention, name), shape) for name, shape in shapes.items()):
        return None
    if attention.heads != heads or attention.kv_heads != heads or heads * attention.head_dim != dim:
        return None
    scale = dot_product_scale(attention.attention, attention.head_dim)
    return None if scale is None or attention.attention.mask is not None else scale


def _is_plain_sublayer(sublayer: nn.Module, dim: int) -> bool:
    return type(sublayer) is Sublayer and is_plain_norm(sublayer.norm, dim)


def _layer_modules(layer: DecoderLayer | EncoderLayer) -> list[nn.Module | None]:
    """The modules in the order of csrc/decoder_step.h; an encoder has no second attention."""
    feed: Any = layer.feed
    modules: list[nn.Module | None] = []
    if isinstance(layer, DecoderLayer):
        attention, cross = layer.self_attention, layer.cross_attention
        modules += [layer.around_self.norm, attention.query, attention.key, attention.value, attention.out]
        modules += [layer.around_cross.norm, cross.query, cross.out]
    else:
        attention = layer.attention
        modules += [
            layer.around_attention.norm,
            attention.query,
            attention.key,
            attention.value,
            attention.out,
            None,
            None,
            None,
        ]
    return [*modules, layer.around_feed.norm, feed.inner, feed.outer]


def _weight_or_bias(module: nn.Module | None, name: str) -> Tensor | None:
    if isinstance(module, QuantizedLinear) and name == "weight":
        return module._buffers["packed"]
    return None if module is None else module._parameters[name]


def _scales(module: nn.Module | None) -> Tensor | None:
    return module._buffers["scale"] if isinstance(module, QuantizedLinear) else None
