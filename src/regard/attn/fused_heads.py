"""Self-attention of a MultiHead in training as one function: the projections, torch's flash kernel, and their gradient.

The same bits as the layer computes step by step, so that a recording changes nothing, with fewer tensors written and
read: a small model takes as long for those as for its products.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from regard.attn.backends import LayerPath
from regard.attn.backends._flash_cpu import Flash, available, flash_backward, flash_forward, whole_span
from regard.attn.call import NOTHING, AttentionInputs
from regard.attn.module_snapshot import has_hooks
from regard.attn.native_heads import dot_product_scale
from regard.attn.nonfinite import finite
from regard.attn.terms.sequence_masks import Causal
from regard.kernels.dispatch import choose_route, is_autocasting
from regard.kernels.second_derivatives import differentiable_gradients


def layer_path(heads: nn.Module, inputs: AttentionInputs) -> LayerPath:
    """This path for `explain`. Non-finite numbers behind a mask, which only a call sees, are left to the backends."""
    plan = _plan(heads, inputs)
    reason = plan if isinstance(plan, str) else None
    return LayerPath("layer", reason, "the projections, torch's flash kernel and their gradient as one function")


def self_attention(heads: nn.Module, inputs: AttentionInputs) -> Tensor | None:  # "b t d" -> "b t d"
    """The output of a MultiHead that attends to its own input, causally or without a mask; None if it cannot run."""
    plan = _plan(heads, inputs)
    if isinstance(plan, str):
        return None
    parameters, scale = plan
    x, mask = inputs.q, inputs.mask
    with torch.no_grad():
        qkv = [F.linear(x, *parameters[n : n + 2]) for n in (0, 2, 4)]
    # non-finite numbers behind the mask must not reach the output: the layer hides them
    if mask is not None and not all(map(finite, qkv)):
        return None
    out: Tensor = _SelfAttentionFunction.apply(x, *parameters, *qkv, heads.heads, scale, mask is not None)
    return out


def _plan(heads: nn.Module, inputs: AttentionInputs) -> tuple[list[Tensor], float] | str:
    """The parameters and the factor on q·k, or the reason why the layer is not computed in one function."""
    x, k, v, mask, positions, need, _ = inputs
    if not torch.is_grad_enabled():
        return "gradients are off"
    if k is not x or v is not None:
        return "it computes attention of x to itself"
    if not isinstance(x, Tensor) or x.is_nested or x.ndim != 3 or not x.numel():
        return "it takes one batch axis, and no empty tensor"
    if not (mask is None or type(mask) is Causal):
        return "it takes no mask but Causal()"
    if positions is not None or need is not NOTHING:
        return "positions are given" if positions is not None else "results beside the output are requested"
    if choose_route(x) != "direct" or is_autocasting(x):
        return "it runs in eager mode without autocast only"
    if not available(x):
        return "it is for CPUs"
    parameters, scale = _parameters(heads, x), _scale(heads)
    if parameters is None:
        return "a projection is no linear layer with a bias, fits no x, or has hooks, or no gradient is to be computed"
    if mask is not None and scale is not None and scale <= 0:
        return "the scale is not positive, as torch's causal kernel needs it"
    if scale is None:
        return (
            "the heads are more than a softmax of dot products, normalize queries and keys, rotate, subtract maps, "
            "have a gate, share keys, or have a mask or dropout"
        )
    return parameters, scale


def _parameters(heads: nn.Module, x: Tensor) -> list[Tensor] | None:
    """Weights and biases of the four projections; None if one of them is no plain linear layer that fits x."""
    parameters: list[Tensor] = []
    for name in ("query", "key", "value", "out"):
        linear = heads._modules[name]
        if type(linear) is not nn.Linear or linear.bias is None or has_hooks(linear) or "forward" in linear.__dict__:
            return None
        parameters += [linear.weight, linear.bias]
    if choose_route(*parameters) != "direct" or any(t.dtype != x.dtype or t.device != x.device for t in parameters):
        return None
    needs_grad = x.requires_grad or any(t.requires_grad for t in parameters)
    # a layer may have lost some of its heads; the layer itself counts those that are left
    layer: Any = heads
    width = layer.heads * layer.head_dim
    fits = all(tuple(t.shape) == (width, x.shape[-1]) for t in parameters[:6:2]) and parameters[6].shape[1] == width
    return parameters if needs_grad and fits else None


def _scale(heads: Any) -> float | None:
    """The factor on q·k; None if the heads are more than a softmax of dot products, or share keys."""
    attention = heads.attention
    if heads.extra_parts or not isinstance(attention, nn.Module):
        return None
    if heads.heads != heads.kv_heads or heads.head_value_dim != heads.head_dim:
        return None
    scale = dot_product_scale(attention, heads.head_dim)
    return scale if scale is not None and attention.mask is None else None


class _SelfAttentionFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
        *parameters, q, k, v, heads, scale, causal = rest
        q, k, v = (_split(each, heads) for each in (q, k, v))
        attended, lse = flash_forward(q, k, v, causal, scale)  # "b h t d"
        ctx.save_for_backward(x, *parameters, q, k, v, attended, lse)
        ctx.rest = heads, scale, causal
        return F.linear(attended.transpose(1, 2).flatten(2), *parameters[6:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters, q, k, v, attended, lse = ctx.saved_tensors
        heads, scale, causal = ctx.rest
        if torch.is_grad_enabled():
            equation = functools.partial(_equation, heads=heads, scale=scale, causal=causal)
            return (*differentiable_gradients(equation, [x, *parameters], grad), *[None] * 6)
        needed = ctx.needs_input_grad
        rows, grad = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
        gradients: list[Tensor | None] = [None] * len(needed)
        if needed[7]:
            gradients[7] = grad.t() @ attended.transpose(1, 2).reshape(len(rows), -1)
        if needed[8]:
            gradients[8] = grad.sum(0)
        if not any(needed[:7]):
            return tuple(gradients)
        attended_grad = (grad @ parameters[6]).view(*x.shape[:2], heads, -1).transpose(1, 2)
        parts = flash_backward(attended_grad, q, k, v, attended, lse, causal, scale)
        for n, part in enumerate(parts):
            part_rows = part.transpose(1, 2).reshape(len(rows), -1)
            if needed[0] and n == 0:
                gradients[0] = part_rows @ parameters[0]
            elif needed[0]:
                gradients[0].addmm_(part_rows, parameters[2 * n])  # type: ignore[union-attr]
            if needed[2 * n + 1]:
                gradients[2 * n + 1] = part_rows.t() @ rows
            if needed[2 * n + 2]:
                gradients[2 * n + 2] = part_rows.sum(0)
        gradients[0] = None if gradients[0] is None else gradients[0].view(x.shape)
        return tuple(gradients)


def _split(x: Tensor, heads: int) -> Tensor:  # "b t h·d" -> "b h t d"
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _equation(x: Tensor, *parameters: Tensor, heads: int, scale: float, causal: bool) -> Tensor:
    q, k, v = (_split(F.linear(x, *parameters[n : n + 2]), heads) for n in (0, 2, 4))  # "b h t d"
    attended = Flash.apply(q, k, v, None, [whole_span(q, k)], None, scale, causal)[0]
    return F.linear(attended.transpose(1, 2).flatten(2), *parameters[6:])
