"""Derivatives of the passes over feature maps: autograd Functions around compute.py.

A first derivative runs the kernels; a derivative of a higher order runs the same formulas in plain torch operations.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.feature_maps import compute
from regard.kernels.feature_maps.compute import per_channel, spatial_axes
from regard.kernels.precision import widen


class SimAMFunction(Function):
    """x σ(d²/(4(v + λ)) + 1/2): "b c *s" -> "b c *s"."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lam: float, native: bool) -> Tensor:
        out, mean, v = compute.simam(x, lam, native)
        ctx.save_for_backward(x, mean, v)
        ctx.lam, ctx.native = lam, native
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, v = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return compute.simam_backward(x, mean, v, grad, ctx.native), None, None
        # mean and v are functions of x here, so that they can be differentiated again
        axes, n = spatial_axes(x), max(1, x.shape[2:].numel() - 1)
        wide = widen(x)
        mean = wide.mean(axes)
        v = (wide - per_channel(mean, x)).square().sum(axes) / n + ctx.lam
        return compute.simam_gradient(x, mean, v, grad).to(x.dtype), None, None


class PoolFunction(Function):
    """x, its mean over positions and, if `with_max`, its maximum: "b c *s" -> "b c *s", "b c", "b c"."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, with_max: bool, native: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        mean, maximum, argmax = compute.pool(x, with_max, native)
        ctx.save_for_backward(argmax)
        ctx.native, ctx.shape, ctx.dtype = native, x.shape, x.dtype
        ctx.set_materialize_grads(False)
        return x, mean, maximum

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, dmean: Tensor | None, dmax: Tensor | None) -> tuple[Tensor | None, ...]:
        (argmax,) = ctx.saved_tensors
        if dmean is None and dmax is None:
            return grad, None, None
        like = dmean if dmean is not None else dmax
        assert like is not None
        dmean = torch.zeros_like(like) if dmean is None else dmean
        if argmax is not None and dmax is None:
            dmax = torch.zeros_like(like)
        if grad is None or torch.is_grad_enabled() or not _can_add_in_place(grad):
            total = (per_channel(dmean, torch.empty(ctx.shape, device="meta")) / ctx.shape[2:].numel()).expand(
                ctx.shape
            )
            if dmax is not None:
                total = total + compute.place_at(dmax, argmax, total)
            return (total.to(ctx.dtype) if grad is None else grad + total.to(ctx.dtype)), None, None
        # the gradient of the returned map belongs to this function, so it may be changed in place
        return compute.pool_backward(grad, dmean, dmax, argmax, ctx.native), None, None


class ChannelPoolFunction(Function):
    """x, and mean and maximum over the channels of w x: "b c *s" -> "b c *s", "b 1 *s", "b 1 *s"."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor | None, native: bool) -> tuple[Tensor, Tensor, Tensor]:
        mean, maximum, argmax = compute.channel_pool(x, w, native)
        ctx.save_for_backward(x, w, argmax)
        ctx.native = native
        return x, mean, maximum

    @staticmethod
    def backward(ctx: Any, grad: Tensor, dmean: Tensor, dmax: Tensor) -> tuple[Tensor | None, ...]:
        x, w, argmax = ctx.saved_tensors
        if not torch.is_grad_enabled() and _can_add_in_place(grad):
            dx, dw = compute.channel_pool_backward(x, w, argmax, grad, dmean, dmax, ctx.native)
            return dx, dw, None
        u = compute.channel_pool_gradient(dmean, dmax, argmax, x)
        if w is None:
            return grad + u.to(x.dtype), None, None
        return grad + (u * per_channel(w, x)).to(x.dtype), (u * x).flatten(2).sum(-1), None


class ScaleFunction(Function):
    """w m x, w "b c" or None, m "b 1 *s" or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor | None, m: Tensor | None, native: bool) -> Tensor:
        ctx.save_for_backward(x, w, m)
        ctx.native = native
        return compute.scale(x, w, m, native)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, m = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return (*compute.scale_backward(x, w, m, grad, ctx.native), None)
        a = None if w is None else per_channel(w, x)
        product = widen(x) * widen(grad)
        dw = None if w is None else (product if m is None else product * m).flatten(2).sum(-1)
        dm = None if m is None else (product if a is None else product * a).sum(1, keepdim=True)
        dx = widen(grad)
        for factor in (a, m):
            dx = dx if factor is None else dx * factor
        return dx.to(x.dtype), dw, dm, None


def _can_add_in_place(t: Tensor) -> bool:
    """Whether every element of t has its own memory."""
    return t._is_view() is False and 0 not in t.stride()
