"""What gates do to a feature map "b c *s", each a pass over it: pool it, look across its channels, scale it, SimAM.

A gate that looks at a map and then scales it needs the gradient of both in one place, so `pooled` and `across` hand the
map on beside what they found: whoever reads it from there sends one gradient back, which they add to. The map handed on
is the same numbers, and belongs to the gate: nobody else may use it.

Half types are computed in float32. In torch.compile, torch.export, torch.func and wherever plain operations are asked
for, the same equations run as such. `native` None takes the native kernels where they run, True insists on them, False
takes torch.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regard.kernels.dispatch import route
from regard.kernels.feature_maps import compute as forms
from regard.kernels.native_library import choose


def _rows(w: Tensor, x: Tensor) -> Tensor:
    """ "b c" with an axis of 1 for every axis of places."""
    return w.view(*w.shape, *[1] * (x.ndim - 2))


def _plain(*tensors: Tensor | None) -> bool:
    """Compiled, exported and transformed code gets plain operations, which all of them understand."""
    return route(*tensors) != "direct"


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x


def simam(x: Tensor, lam: float, native: bool | None = None) -> Tensor:
    """x σ(d²/(4(v + λ)) + 1/2), d = x − mean over places, v = Σd²/(n − 1)."""
    if _plain(x):
        return (x * torch.sigmoid(forms.energies(x, lam))).to(x.dtype)
    return _SimAM.apply(x, lam, choose(native, x))


class _SimAM(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lam: float, native: bool) -> Tensor:
        out, mean, v = forms.simam(x, lam, native)
        ctx.save_for_backward(x, mean, v)
        ctx.lam, ctx.native = lam, native
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, v = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return forms.simam_backward(x, mean, v, grad, ctx.native), None, None
        # to be differentiated again: mean and v as functions of x
        places, n = tuple(range(2, x.ndim)), max(1, x.shape[2:].numel() - 1)
        wide = _wide(x)
        mean = wide.mean(places)
        v = (wide - _rows(mean, x)).square().sum(places) / n + ctx.lam
        return forms.simam_slope(x, mean, v, grad).to(x.dtype), None, None


def pooled(x: Tensor, native: bool | None = None) -> tuple[Tensor, Tensor]:
    """x, and its mean over places, "b c", in float32 at least."""
    if _plain(x):
        return x, _wide(x).mean(tuple(range(2, x.ndim)))
    handed, mean, _ = _Pooled.apply(x, False, choose(native, x))
    return handed, mean


def pooled_both(x: Tensor, native: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x, and its mean and its greatest value over places, "b c" each; of equal ones the first has the gradient."""
    if _plain(x):
        wide = _wide(x)
        return x, wide.mean(tuple(range(2, x.ndim))), wide.flatten(2).max(-1).values
    return _Pooled.apply(x, True, choose(native, x))


class _Pooled(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, top: bool, native: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        mean, most, at = forms.pool(x, top, native)
        ctx.save_for_backward(at)
        ctx.native, ctx.shape, ctx.dtype = native, x.shape, x.dtype
        ctx.set_materialize_grads(False)
        return x, mean, most

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, dmean: Tensor | None, dmost: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        (at,) = ctx.saved_tensors
        if dmean is None and dmost is None:
            return grad, None, None
        like = dmean if dmean is not None else dmost
        assert like is not None
        dmean = torch.zeros_like(like) if dmean is None else dmean
        if at is not None and dmost is None:
            dmost = torch.zeros_like(like)
        if grad is None or torch.is_grad_enabled() or not _dense(grad):
            total = (_rows(dmean, torch.empty(ctx.shape, device="meta")) / ctx.shape[2:].numel()).expand(ctx.shape)
            if dmost is not None:
                total = total + forms.one_place(dmost, at, total)
            return (total.to(ctx.dtype) if grad is None else grad + total.to(ctx.dtype)), None, None
        # the gradient was made by whoever the map was handed to, for nobody else
        return forms.pool_backward(grad, dmean, dmost, at, ctx.native), None, None


def _dense(t: Tensor) -> bool:
    """Has every number a place of its own, so that it may be added to?"""
    return t._is_view() is False and 0 not in t.stride()


def across(x: Tensor, w: Tensor | None = None, native: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x, and mean and greatest over the channels of w x, "b 1 *s" each, w "b c"; w x is not formed."""
    if _plain(x, w):
        y = _wide(x) if w is None else _wide(x) * _rows(w, x)
        return x, y.mean(1, keepdim=True), y.max(1, keepdim=True).values
    return _Across.apply(x, w, choose(native, x))


class _Across(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor | None, native: bool) -> tuple[Tensor, Tensor, Tensor]:
        mean, most, at = forms.across(x, w, native)
        ctx.save_for_backward(x, w, at)
        ctx.native = native
        return x, mean, most

    @staticmethod
    def backward(ctx: Any, grad: Tensor, dmean: Tensor, dmost: Tensor) -> tuple[Tensor | None, ...]:
        x, w, at = ctx.saved_tensors
        if not torch.is_grad_enabled() and _dense(grad):
            dx, dw = forms.across_backward(x, w, at, grad, dmean, dmost, ctx.native)
            return dx, dw, None
        u = forms.spread_channels(dmean, dmost, at, x)
        if w is None:
            return grad + u.to(x.dtype), None, None
        return grad + (u * _rows(w, x)).to(x.dtype), (u * x).flatten(2).sum(-1), None


def scaled(x: Tensor, w: Tensor | None = None, m: Tensor | None = None, native: bool | None = None) -> Tensor:
    """w m x: a weight for every channel, "b c", a weight for every place, "b 1 *s", or both."""
    if _plain(x, w, m):
        factor = m if w is None else _rows(w, x) if m is None else _rows(w, x) * m
        return x if factor is None else x * factor.to(x.dtype)
    return _Scaled.apply(x, w, m, choose(native, x))


class _Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor | None, m: Tensor | None, native: bool) -> Tensor:
        ctx.save_for_backward(x, w, m)
        ctx.native = native
        return forms.scale(x, w, m, native)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, m = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return (*forms.scale_backward(x, w, m, grad, ctx.native), None)
        a = None if w is None else _rows(w, x)
        both = _wide(x) * _wide(grad)
        dw = None if w is None else (both if m is None else both * m).flatten(2).sum(-1)
        dm = None if m is None else (both if a is None else both * a).sum(1, keepdim=True)
        dx = _wide(grad)
        for factor in (a, m):
            dx = dx if factor is None else dx * factor
        return dx.to(x.dtype), dw, dm, None
