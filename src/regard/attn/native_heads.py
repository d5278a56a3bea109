"""A step of MultiHead in one native call: whether it can run, and the call."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.backends import LayerPath
from regard.attn.backends.dot_softmax import plain_scale
from regard.attn.heads.native_parts import native_parts
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.module_snapshot import derived, has_global_hooks
from regard.attn.quantized_linear import QuantizedLinear
from regard.attn.terms.bias import is_score_mask
from regard.attn.terms.mask import Mask, as_mask
from regard.attn.terms.position import Positions
from regard.kernels.decoder_step import HEADS_STEP_WITH_PARTS, HeadsWeights, addresses, heads_step
from regard.kernels.dispatch import choose_route, is_autocasting
from regard.kernels.int8_linear import PANEL, QUAD
from regard.kernels.native_library import has_kernel, unsupported_reason

# In batches of more tokens torch multiplies as fast, and by all threads.
MOST_ROWS = 64

_NOT_PLAIN = (
    "the heads are more than linear layers, a softmax of dot products, their bound or null slot, and norms, rotations, "
    "differences and gates of this library (forgetting is more), or have hooks"
)


def mode_reason(x: Tensor) -> str | None:
    """The reason why no native step may run now: gradients, autocast, observers or hooks for all modules."""
    if torch.is_grad_enabled():
        return "gradients are on"
    if choose_route(x) != "direct" or is_autocasting(x):
        return "it runs in eager mode without autocast only"
    if has_global_hooks():
        return "torch has hooks for all modules"
    return None if observer.current_observer() is None else "the attention is recorded"


def can_step(x: Tensor) -> bool:
    """Whether native steps may run now."""
    return mode_reason(x) is None


def dot_product_scale(attention: nn.Module, width: int) -> float | None:
    """The factor on q·k if the layer is a softmax of dot products and nothing else but a mask; None if it is not."""
    if type(attention) is not Attention or attention.bias is not None or attention.backend is not None:
        return None
    if attention.training and attention.dropout:
        return None
    return plain_scale(attention.score, attention.normalize, attention.read, width)


def has_plain_calls(root: nn.Module) -> bool:
    """Whether calls of the modules below `root` are those of their classes: no forward hooks, no replaced forward."""
    return not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__ for module in root.modules()
    )


def is_plain_linear(linear: nn.Module, shape: tuple[int, int]) -> bool:
    """Whether the module is W x + b with W of this shape: a native call reads as many numbers, whatever is there.

    W may have 8 bits.
    """
    if type(linear) is QuantizedLinear:
        return _have_packed_shape(linear, shape)
    return type(linear) is nn.Linear and _have_shape(linear, shape)


def is_plain_norm(norm: nn.Module, dim: int) -> bool:
    """Whether the module normalises vectors of this width, and multiplies them by a weight."""
    is_norm = type(norm) is nn.LayerNorm and tuple(norm.normalized_shape) == (dim,)
    return is_norm and _have_shape(norm, (dim,))


def _have_shape(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the weight has this shape, and the bias its first size."""
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    return weight is not None and weight.shape == shape and (bias is None or bias.shape == shape[:1])


def _have_packed_shape(linear: QuantizedLinear, shape: tuple[int, int]) -> bool:
    (out, features), bias = shape, linear._parameters["bias"]
    packed = (-(-out // PANEL), -(-features // QUAD), PANEL, QUAD)
    sizes = tuple(linear.packed.shape) == packed and tuple(linear.scale.shape) == (out,)
    return sizes and linear.in_features == features and (bias is None or bias.shape == (out,))


def are_native_bytes(parameters: list[Tensor | None], scales: list[Tensor | None]) -> bool:
    """Whether the native library can read parameters of which those with scales, at the same place, have 8 bits."""
    scales = [*scales, *[None] * (len(parameters) - len(scales))]
    packed = [parameter for parameter, scale in zip(parameters, scales, strict=True) if scale is not None]
    floats = [parameter for parameter, scale in zip(parameters, scales, strict=True) if scale is None]
    if not packed:
        return are_native(floats)
    if any(t is None or t.dtype != torch.uint8 or not t.is_cpu or not t.is_contiguous() for t in packed):
        return False
    tensors = [t for t in (*floats, *scales) if t is not None]
    return all(t.dtype == torch.float32 and t.is_cpu and t.is_contiguous() for t in tensors) and are_native(floats)


def are_native(parameters: list[Tensor | None]) -> bool:
    """Whether the native library can read these parameters where they are."""
    tensors = [parameter for parameter in parameters if parameter is not None]
    return unsupported_reason(*tensors) is None and all(
        type(tensor) is nn.Parameter and tensor.is_contiguous() for tensor in tensors
    )


def step(
    heads: nn.Module, x: Tensor, past: KVCache | None, mask: Mask | Tensor | None, positions: Positions | None
) -> tuple[Tensor, KVCache] | None:  # "b 1 d"
    """The attention of one token per sequence to `past` and itself, and the longer cache; None if it cannot run."""
    weights = _plan(heads, x, past, mask, positions)
    if isinstance(weights, str):
        return None
    if past is None:
        nothing = x.new_empty(len(x), weights.kv_heads, 0, weights.head_dim)
        past = KVCache(nothing, nothing)
    cache = past.reserve(1)
    assert cache.entry is not None
    turns = None if heads.rotate is None else heads.rotate.turns(x, start=len(cache) - 1)  # type: ignore[operator, union-attr]
    return heads_step(x, weights, cache.entry, len(cache), turns), cache


def layer_path(
    heads: nn.Module, x: Tensor, past: KVCache | None, mask: Mask | Tensor | None, positions: Positions | None
) -> LayerPath:
    """This path for `explain`."""
    plan = _plan(heads, x, past, mask, positions)
    return LayerPath("step", plan if isinstance(plan, str) else None, "one native kernel, projections included")


def _plan(
    heads: nn.Module, x: Tensor, past: KVCache | None, mask: Mask | Tensor | None, positions: Positions | None
) -> HeadsWeights | str:
    """The weights of a step, or the reason why it is not computed by one kernel."""
    if x.ndim != 3 or x.shape[1] != 1 or len(x) > MOST_ROWS or not x.is_contiguous():
        return f"it takes one token of each of at most {MOST_ROWS} sequences, (b, 1, d)"
    reason = mode_reason(x)
    if reason is not None:
        return reason
    if x.device.type != "cpu":
        return "its kernel is for CPUs"
    weights = derived((heads,), _weights)
    if weights is None:
        return _NOT_PLAIN
    if weights.parts is not None and not has_kernel(HEADS_STEP_WITH_PARTS):
        return (
            "the native library was built without its kernel for norms, rotations, null slots and other parts of heads"
        )
    if x.dtype != weights.dtype or x.shape[2] != weights.dim:
        return "x is not of the width and the type of the weights"
    if past is not None and not _fits(past, x, weights):
        return "the cache has positions, or is not of the shape and the type of the heads"
    if positions is not None and heads.rotate is not None:
        return "positions are given, and the heads rotate"
    length = 1 if past is None else len(past) + 1
    for some in (mask, heads.attention.mask):  # type: ignore[union-attr]
        # positions decide nothing without a mask: there is no bias
        if some is None:
            continue
        if is_score_mask(some) or positions is not None or not as_mask(some).hides_nothing(1, length):  # type: ignore[arg-type]
            return "a mask may hide keys, or holds numbers"
    return weights


def _fits(past: KVCache, x: Tensor, weights: HeadsWeights) -> bool:
    shape = (len(x), weights.kv_heads, len(past), weights.head_dim)
    return (
        past.positions is None
        and past.keys.device == past.values.device == x.device
        and past.keys.shape == past.values.shape == shape
        and past.keys.dtype == past.values.dtype == x.dtype
        and past.keys.stride(-1) == past.values.stride(-1) == 1
    )


def _weights(heads: Any) -> HeadsWeights | None:
    """The addresses of the weights of a MultiHead; None if it has parts that a native step does not compute."""
    linears = [heads.query, heads.key, heads.value, heads.out]
    plan = native_parts(heads)
    if plan is None or not has_plain_calls(heads):
        return None
    dim = heads.query.in_features
    inner, outer = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim
    shapes = [(inner, dim), (outer, dim), (outer, dim), (dim, inner)]
    if not all(
        type(linear) is nn.Linear and is_plain_linear(linear, shape)
        for linear, shape in zip(linears, shapes, strict=True)
    ):
        return None
    parameters = [parameter for linear in linears for parameter in (linear.weight, linear.bias)]
    if not are_native([*parameters, *plan.tensors]):
        return None
    sizes = (dim, heads.heads, heads.kv_heads, heads.head_dim)
    return HeadsWeights(addresses(parameters), parameters[0].dtype, *sizes, plan.scale, plan.parts, plan.constants)
