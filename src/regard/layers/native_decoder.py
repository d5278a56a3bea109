"""Few tokens through all layers of a Transformer in one native call: a step of the decoder, or a short source."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.backends import trace_path
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
    mode_reason,
)
from regard.attn.quantized_linear import QuantizedLinear
from regard.attn.terms.position import Sinusoidal
from regard.kernels.decoder_step import DecoderWeights, addresses, decoder_step, encode, stack_step
from regard.layers.gelu import is_tanh_gelu
from regard.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Sublayer

# In larger batches of sources torch multiplies about as fast, and shares one sentence among threads.
_MOST_TOKENS = 512
# positions whose encodings are kept
_LONGEST = 512

_NOT_PLAIN = (
    "a layer is more than linear layers, norms, a softmax of dot products and relu or gelu, drops activations, or has "
    "hooks"
)
_UNFIT = "x is not of the width and the type of the weights, on a CPU"
_UNFIT_CACHE = "a cache has positions, or is not of the shape and the type of the layers"


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
    weights = _batch_weights(layers, norm, x, lengths)
    if isinstance(weights, DecoderWeights):
        b, count, d = x.shape
        width = d // weights.heads
        if past is None:
            nothing = x.new_empty(b, weights.layers, weights.heads, 0, width)
            past = KVCache(nothing, nothing)
        # all sources come from the same layers
        source = (b, weights.heads, len(sources[0]), width)
        is_held = _holds(past, x, (b, weights.layers, weights.heads, len(past), width)) and _holds(
            sources[0], x, source
        )
        entries = [source.entry for source in sources]
        if not is_held or None in entries or len(sources) != weights.layers:
            weights = _UNFIT_CACHE
    trace_path(layers, "decoder", weights, "the step of all layers in one native kernel")
    if isinstance(weights, str):
        return None
    assert past is not None
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
    plan = _stack_plan(layers, norm, x, pasts, allowed)
    trace_path(layers, "stack", plan, "the step of all layers in one native kernel")
    if isinstance(plan, str):
        return None
    weights, caches = plan
    longer = tuple(cache.reserve(1) for cache in caches)
    entries = [cache.entry for cache in longer if cache.entry is not None]
    kept = None if allowed is None else allowed.contiguous()
    return stack_step(x.contiguous(), weights, entries, len(longer[0]), kept), longer


def _stack_plan(
    layers: nn.ModuleList, norm: nn.Module, x: Tensor, pasts: Sequence[KVCache | None], allowed: Tensor | None
) -> tuple[DecoderWeights, list[KVCache]] | str:
    """The weights and the caches of a step, or the reason why it is not computed by one kernel."""
    if x.ndim != 3 or x.shape[1] != 1 or not 0 < len(x) <= MOST_ROWS:
        return f"it takes one token of each of at most {MOST_ROWS} sequences, (b, 1, d)"
    reason = mode_reason(x)
    if reason is not None:
        return reason
    weights = derived((layers, norm), _weights)
    if weights is None or type(layers[0]) is not EncoderLayer:
        return _NOT_PLAIN
    if x.dtype != weights.dtype or x.device.type != "cpu" or x.shape[2] != weights.dim:
        return _UNFIT
    shape = (len(x), weights.heads, 0 if pasts[0] is None else len(pasts[0]), weights.dim // weights.heads)
    empty = x.new_empty(shape) if pasts[0] is None else None
    caches = [KVCache(empty, empty) if past is None and empty is not None else past for past in pasts]
    present = [cache for cache in caches if cache is not None and cache.positions is None and _holds(cache, x, shape)]
    if len(present) != weights.layers or len(pasts) != weights.layers:
        return _UNFIT_CACHE
    keys = (len(x), shape[2] + 1)
    if allowed is not None and (allowed.dtype != torch.bool or allowed.device != x.device or allowed.shape != keys):
        return "the mask is not one of booleans, (b, keys)"
    return weights, present


def native_encode(
    layers: nn.ModuleList, norm: nn.Module, x: Tensor, lengths: Tensor
) -> Tensor | None:  # "b s d", "b" -> "b s d"
    """norm(h) of an encoder whose tokens attend to the first `lengths` of their sentence; None if it cannot run."""
    if x.ndim != 3 or not 0 < len(x) * x.shape[1] <= _MOST_TOKENS:
        weights: DecoderWeights | str = f"it takes 1 to {_MOST_TOKENS} tokens, (b, s, d)"
    else:
        weights = _batch_weights(layers, norm, x, lengths)
    trace_path(layers, "encoder", weights, "all layers in one native kernel")
    return None if isinstance(weights, str) else encode(x.contiguous(), weights, lengths.contiguous())


def _batch_weights(
    layers: nn.ModuleList, norm: nn.Module, x: Tensor, lengths: Tensor
) -> DecoderWeights | str:  # "b n d", "b"
    """The weights that the kernel reads beside these tokens and lengths, or the reason why it cannot."""
    reason = mode_reason(x)
    if reason is not None:
        return reason
    weights = derived((layers, norm), _weights)
    if weights is None:
        return _NOT_PLAIN
    if weights.gelu:
        return "its kernel has relu, not gelu"
    if x.dtype != weights.dtype or x.device.type != "cpu" or x.shape[2] != weights.dim:
        return _UNFIT
    if lengths.device.type != "cpu" or lengths.dtype != torch.long or lengths.shape != x.shape[:1]:
        return "the lengths are not int64 on the CPU, one per sentence"
    return weights


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
    elif type(layer) is EncoderLayer and layer.residual in ("post", "pre"):
        attentions, around = [layer.attention], [layer.around_attention, layer.around_feed]  # type: ignore[list-item]
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
    if type(attention) is not MultiHead or attention.extra_parts:
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
        attention: Any = layer.self_attention
        cross = layer.cross_attention
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
