"""Few tokens through attention in one native call: a multi-head layer, or all layers of a decoder or an encoder.

A step multiplies few rows with many weights: each operation of torch costs more than its product. Here the weights are
read once for all rows, where they are; keys and values are written into their cache. There is no form in torch and no
gradient: use the layers themselves where `dispatch.can_run_native` is false or a gradient is needed.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.kernels.native_library import call_kernel

# addresses of weight and bias of every norm and product of a layer, in the order of csrc/decoder_step.h; an encoder has
# none for the attention to a source
LAYER_WEIGHTS = 22
# kernels of a step of heads; a library may lack the second one
HEADS_STEP, HEADS_STEP_WITH_PARTS = "regard_heads_step", "regard_heads_step_with_parts"


def addresses(parameters: Sequence[Tensor | None]) -> Any:
    """The addresses of parameters as the native library reads them; None is a missing bias."""
    pointers = [None if parameter is None else parameter.data_ptr() for parameter in parameters]
    return (ctypes.c_void_p * len(pointers))(*pointers)


def cache_entry(keys: Tensor, values: Tensor) -> tuple[int, ...]:  # "b *l h k c", "b *l h k v"
    """Where the keys and values of a cache are: addresses, and the strides of all axes but the last."""
    return (keys.data_ptr(), values.data_ptr(), *keys.stride()[:-1], *values.stride()[:-1])


class StepParts(ctypes.Structure):
    """What heads have beside their projections and a softmax of dot products, as csrc/native.c reads it."""

    _fields_ = (
        ("gain", ctypes.c_void_p * 2),
        ("offset", ctypes.c_void_p * 2),
        ("gate", ctypes.c_void_p * 2),
        *((name, ctypes.c_void_p) for name in ("sink", "cosine", "sine")),
        *((name, ctypes.c_int64) for name in ("norm", "gates", "sink_step", "pairs", "neighbours")),
        *((name, ctypes.c_double) for name in ("eps", "base", "cap", "cooling")),
        ("difference", ctypes.c_void_p * 4),
        *((name, ctypes.c_double) for name in ("start", "difference_eps")),
    )


@dataclass(frozen=True)
class HeadsWeights:
    """The weights of a multi-head layer: addresses of weight and bias of q, k, v and out."""

    pointers: Any
    dtype: torch.dtype
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    parts: StepParts | None = None
    constants: Sequence[Tensor] = ()  # tensors that `parts` points to and no module holds


def heads_step(
    x: Tensor, weights: HeadsWeights, entry: tuple[int, ...], length: int, turns: tuple[Tensor, Tensor] | None = None
) -> Tensor:  # "b 1 d", turns "1 r" -> "b 1 d"
    """Self-attention of one token per sequence; its key and value become the last of the `length` cached ones.

    `turns` are the cosines and sines of their rotation.
    """
    out, step_parts = torch.empty_like(x), weights.parts
    if turns is not None:
        cosine, sine = turns[0].contiguous(), turns[1].contiguous()
        assert step_parts is not None
        assert cosine.dtype == sine.dtype == x.dtype
        assert cosine.numel() == sine.numel() == step_parts.pairs
        step_parts = StepParts.from_buffer_copy(step_parts)
        step_parts.cosine, step_parts.sine = cosine.data_ptr(), sine.data_ptr()
    sizes = (len(x), length, x.shape[-1], weights.heads, weights.kv_heads, weights.head_dim)
    table = (ctypes.c_int64 * len(entry))(*entry)
    parts = () if step_parts is None else (ctypes.addressof(step_parts),)
    call_kernel(
        HEADS_STEP if step_parts is None else HEADS_STEP_WITH_PARTS,
        x,
        *sizes,
        weights.scale,
        ctypes.addressof(weights.pointers),
        ctypes.addressof(table),
        *(*parts, x, out),
    )
    return out


@dataclass(frozen=True)
class DecoderWeights:
    """The weights of all layers of a decoder or an encoder and of its last norm, in the order of LAYER_WEIGHTS."""

    pointers: Any
    dtype: torch.dtype
    dim: int
    layers: int
    heads: int
    feed: int
    norm_first: bool
    scale: float
    eps: float
    gelu: bool = False  # the form with tanh; otherwise relu
    scales: Any = (
        None  # addresses of the scales of 8-bit weights, at the places of these in `pointers`; None: all floats
    )
    is_float: bool = False  # beside 8-bit weights activations stay as they are

    def arguments(self) -> tuple[int | None, ...]:
        """The arguments of a kernel from the weights to the scales."""
        scales = None if self.scales is None else ctypes.addressof(self.scales)
        return ctypes.addressof(self.pointers), scales, self.is_float


def stack_step(
    x: Tensor, weights: DecoderWeights, pasts: Sequence[tuple[int, ...]], length: int, allowed: Tensor | None = None
) -> Tensor:  # "b 1 d", bool "b k" -> "b 1 d"
    """One token per sequence through layers that attend to their own past alone, such as those of a language model.

    `pasts` are the entries of the caches of the layers, "b h k c"; the new keys are the last of `length` in each.
    `allowed` marks the keys that a sequence attends to, the new one included; None: all.
    """
    out = torch.empty_like(x)
    entries = [number for past in pasts for number in (*past, *(0,) * 8)]
    table = (ctypes.c_int64 * len(entries))(*entries)
    call_kernel(
        "regard_int8_stack_step",
        x,
        *(len(x), length, weights.dim, weights.feed, weights.heads, weights.layers),
        *(weights.norm_first, weights.gelu, weights.scale, weights.eps),
        *(*weights.arguments(), ctypes.addressof(table)),
        *(allowed, x, out),
    )
    return out


def decoder_step(
    x: Tensor,
    weights: DecoderWeights,
    past: tuple[int, ...],
    sources: Sequence[tuple[int, ...]],
    paths: Tensor | None,
    first: int,
    lengths: Tensor,
    longest: int,
) -> Tensor:  # "b n d" -> "b n d"
    """One token of n hypotheses per sentence through the decoder; their keys go into the columns `first` to first + n.

    `past` is the entry of one cache for all layers, "b l h k c". `paths` "b n t" are the columns of each hypothesis's
    own past and itself; None: all, with one hypothesis. `lengths` "b" are those of the sources, the longest has
    `longest` keys.
    """
    size = x.element_size()
    keys, values, *strides = past
    k, v = strides[:4], strides[4:]
    entries: list[int] = []
    for n, source in enumerate(sources):
        entries += [keys + n * k[1] * size, values + n * v[1] * size, k[0], k[2], k[3], v[0], v[2], v[3], *source]
    columns = first + 1 if paths is None else paths.shape[-1]
    return _run_layers(x, weights, entries, columns, first, paths, lengths, longest)


def encode(x: Tensor, weights: DecoderWeights, lengths: Tensor) -> Tensor:  # "b s d", "b" -> "b s d"
    """All tokens through the layers of an encoder, in which they attend to the first `lengths` of their sentence."""
    b, s, d = x.shape
    # keys and values "b s h c" of one layer at a time
    keys, values = x.new_empty(2, b, s, d).unbind()
    strides = (s * d, d // weights.heads, d)
    layer = (keys.data_ptr(), values.data_ptr(), *strides, *strides, *(0,) * 8)
    return _run_layers(x, weights, layer * weights.layers, 0, 0, None, lengths, s)


def _run_layers(
    x: Tensor,
    weights: DecoderWeights,
    entries: Sequence[int],
    columns: int,
    first: int,
    paths: Tensor | None,
    lengths: Tensor,
    longest: int,
) -> Tensor:  # "b n d" -> "b n d"
    """All layers with the caches `entries`; without columns of a past they are those of an encoder."""
    out, (b, per, d) = torch.empty_like(x), x.shape
    table = (ctypes.c_int64 * len(entries))(*entries)
    call_kernel(
        "regard_int8_decoder_step",
        x,
        *(b * per, per, columns, first, d, weights.feed, weights.heads, weights.layers, longest),
        *(weights.norm_first, weights.scale, weights.eps),
        *(*weights.arguments(), ctypes.addressof(table)),
        *(paths, lengths, x, out),
    )
    return out
