"""Passes over a feature map "b c *s" without derivatives: native where the map is contiguous, else in torch.

The torch forms take a few samples at a time, so that intermediate results stay in the cache. They keep the layout of x
(also channels last) and compute in float32 at least.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.kernels.native_library import call_kernel
from regard.kernels.precision import widen

# elements per chunk of the torch forms on a CPU: 1 MB of float32
_CHUNK_ELEMENTS = 1 << 18


def _can_run_native(x: Tensor, native: bool) -> bool:
    """Whether the native kernels can take the layout of this map."""
    return native and x.is_contiguous() and x.numel() > 0


def _sample_chunks(x: Tensor) -> Iterator[slice]:
    """Slices of a few samples each; off the CPU, where every operation is a launch, all of them."""
    if x.device.type != "cpu":
        yield slice(None)
        return
    step = max(1, _CHUNK_ELEMENTS // max(1, x[:1].numel()))
    for start in range(0, max(1, x.shape[0]), step):
        yield slice(start, start + step)


def spatial_axes(x: Tensor) -> tuple[int, ...]:
    """The axes of positions of "b c *s"."""
    return tuple(range(2, x.ndim))


def per_channel(w: Tensor, x: Tensor) -> Tensor:
    """w "b c" with an axis of 1 per spatial axis of x."""
    return w.view(*w.shape, *[1] * (x.ndim - 2))


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """b, c and the number of positions."""
    b, c = x.shape[:2]
    return b, c, x.numel() // (b * c)


def _index_dtype(x: Tensor) -> torch.dtype:
    """Integers as wide as the floats of x: the native kernels compare the two side by side."""
    return torch.int64 if x.dtype == torch.float64 else torch.int32


# x σ(d²/(4(v + λ)) + 1/2), d = x − mean, v = Σd²/(n − 1)


def inverse_energies(x: Tensor, lam: float) -> Tensor:
    """d²/(4(v + λ)) + 1/2: the inverse of SimAM's minimal energy. Differentiable; float32 at least."""
    wide, axes = widen(x), spatial_axes(x)
    d = wide - wide.mean(axes, keepdim=True)
    squares = d * d
    n = max(1, x.shape[2:].numel() - 1)
    return squares / (4 * (squares.sum(axes, keepdim=True) / n + lam)) + 0.5


def simam(x: Tensor, lam: float, native: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gated map, and mean and v + λ of every channel, "b c"."""
    out = torch.empty_like(x)
    dtype = widen(x[:0]).dtype
    mean, v = (torch.empty(x.shape[:2], dtype=dtype, device=x.device) for _ in range(2))
    if _can_run_native(x, native):
        b, c, n = _sizes(x)
        call_kernel("regard_simam", x, b * c, n, lam, x, None, mean, v, out)
        return out, mean, v
    axes, n = spatial_axes(x), max(1, x.shape[2:].numel() - 1)
    for chunk in _sample_chunks(x):
        wide = widen(x[chunk])
        centre = wide.mean(axes, keepdim=True)
        gate = (wide - centre).square_()
        variance = gate.sum(axes, keepdim=True) / n + lam
        torch.mul(wide, gate.div_(4 * variance).add_(0.5).sigmoid_(), out=gate)
        out[chunk] = gate
        mean[chunk], v[chunk] = centre.flatten(1), variance.flatten(1)
    return out, mean, v


def simam_backward(x: Tensor, mean: Tensor, v: Tensor, grad: Tensor, native: bool) -> Tensor:
    """The gradient of x, from the mean and v + λ that `simam` returned."""
    grad = _match_layout(grad, x)
    dx = torch.empty_like(x)
    if _can_run_native(x, native):
        b, c, n = _sizes(x)
        call_kernel("regard_simam", x, b * c, n, 0.0, x, grad, mean, v, dx)
        return dx
    for chunk in _sample_chunks(x):
        dx[chunk] = simam_gradient(x[chunk], mean[chunk], v[chunk], grad[chunk])
    return dx


def simam_gradient(x: Tensor, mean: Tensor, v: Tensor, grad: Tensor) -> Tensor:
    """g s + (h d − mean(h d))/(2v) − d Σ(h d²)/(2(n − 1)v²), s the gate, h = g x s(1 − s)."""
    axes, n = spatial_axes(x), max(1, x.shape[2:].numel() - 1)
    rows = x.shape[:2] + (1,) * len(axes)
    mean, v = mean.view(rows), v.view(rows)
    wide, grad = widen(x), widen(grad)
    d = wide - mean
    s = torch.sigmoid(d * d / (4 * v) + 0.5)
    hd = grad * wide * s * (1 - s) * d
    pull = (hd * d).sum(axes, keepdim=True) / (2 * n * v * v)
    return grad * s + (hd - hd.mean(axes, keepdim=True)) / (2 * v) - d * pull


def _match_layout(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient in the memory layout of x."""
    if x.is_contiguous():
        return grad.contiguous()
    return grad if grad.stride() == x.stride() else torch.empty_like(x).copy_(grad)


# mean and maximum over the positions of every channel


def pool(x: Tensor, with_max: bool, native: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The mean "b c" and, if `with_max`, the maximum and its position."""
    if _can_run_native(x, native):
        b, c, n = _sizes(x)
        mean = x.new_empty(b, c)
        maximum = x.new_empty(b, c) if with_max else None
        argmax = x.new_empty(b, c, dtype=_index_dtype(x)) if with_max else None
        call_kernel("regard_pool", x, b * c, n, x, mean, maximum, argmax, None)
        return mean, maximum, argmax
    mean = widen(x).mean(spatial_axes(x)) if x.dtype.itemsize >= 4 else x.mean(spatial_axes(x), dtype=torch.float32)
    if not with_max:
        return mean, None, None
    maximum, argmax = x.flatten(2).max(-1)
    return mean, maximum.to(mean.dtype), argmax


def pool_backward(dx: Tensor, dmean: Tensor, dmax: Tensor | None, argmax: Tensor | None, native: bool) -> Tensor:
    """dx, changed in place, + dmean / n everywhere and dmax at the position of the maximum."""
    if _can_run_native(dx, native):
        b, c, n = _sizes(dx)
        dmean = dmean.contiguous()
        dmax = None if dmax is None else dmax.contiguous()
        # the forward pass may have run in torch, whose indices are int64
        argmax = None if argmax is None else argmax.to(_index_dtype(dx))
        call_kernel("regard_pool", dx, b * c, n, None, dmean, dmax, argmax, dx)
        return dx
    rows = dx.shape[:2] + (1,) * (dx.ndim - 2)
    dx += (dmean / dx.shape[2:].numel()).view(rows)
    if dmax is not None and argmax is not None:
        dx += place_at(dmax, argmax, dx)
    return dx


def place_at(values: Tensor, index: Tensor, like: Tensor) -> Tensor:
    """A map of zeros except `values` "b c", each at its position `index`."""
    selected = torch.arange(like.shape[2:].numel(), device=like.device) == index.unsqueeze(-1)
    return torch.where(selected, values.unsqueeze(-1), 0).view(like.shape)


# mean and maximum over the channels of w x, w "b c"


def channel_pool(x: Tensor, w: Tensor | None, native: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and maximum "b 1 *s", and the channel of the maximum."""
    shape = (x.shape[0], 1, *x.shape[2:])
    if _can_run_native(x, native):
        b, c, n = _sizes(x)
        w = None if w is None else w.contiguous()
        mean, maximum, argmax = x.new_empty(shape), x.new_empty(shape), x.new_empty(shape, dtype=_index_dtype(x))
        call_kernel("regard_across", x, b, c, n, x, w, mean, maximum, argmax, None, None)
        return mean, maximum, argmax
    means, maxima, indices = [], [], []
    for chunk in _sample_chunks(x):
        y = widen(x[chunk])
        if w is not None:
            y = y * per_channel(w[chunk], x)
        maximum, argmax = y.max(1, keepdim=True)
        means.append(y.mean(1, keepdim=True))
        maxima.append(maximum)
        indices.append(argmax)
    return torch.cat(means), torch.cat(maxima), torch.cat(indices)


def channel_pool_backward(
    x: Tensor, w: Tensor | None, argmax: Tensor, dx: Tensor, dmean: Tensor, dmax: Tensor, native: bool
) -> tuple[Tensor, Tensor | None]:
    """dx, changed in place, plus the gradients through mean and maximum; and the gradient of w."""
    dw = None if w is None else torch.empty_like(w, memory_format=torch.contiguous_format)
    if _can_run_native(x, native) and _can_run_native(dx, native):
        b, c, n = _sizes(x)
        dmean, dmax, w = dmean.contiguous(), dmax.contiguous(), None if w is None else w.contiguous()
        call_kernel("regard_across", x, b, c, n, x, w, dmean, dmax, argmax.to(_index_dtype(x)), dx, dw)
        return dx, dw
    for chunk in _sample_chunks(x):
        u = channel_pool_gradient(dmean[chunk], dmax[chunk], argmax[chunk], x[chunk])
        if w is None or dw is None:
            dx[chunk] += u
        else:
            dw[chunk] = (u * x[chunk]).flatten(2).sum(-1)
            dx[chunk] += u * per_channel(w[chunk], x)
    return dx, dw


def channel_pool_gradient(dmean: Tensor, dmax: Tensor, argmax: Tensor, like: Tensor) -> Tensor:
    """dmean / c in every channel and dmax in the channel of the maximum. Differentiable."""
    c = like.shape[1]
    channel = torch.arange(c, device=like.device).view(-1, *[1] * (like.ndim - 2))
    return dmean / c + torch.where(channel == argmax, dmax, 0)


# w m x, w "b c" or None, m "b 1 *s" or None


def scale(x: Tensor, w: Tensor | None, m: Tensor | None, native: bool) -> Tensor:
    """w m x; either factor may be None."""
    if _can_run_native(x, native):
        b, c, n = _sizes(x)
        out = torch.empty_like(x)
        w, m = (None if t is None else t.contiguous() for t in (w, m))
        call_kernel("regard_scale", x, b, c, n, x, w, m, None, out, None, None)
        return out
    rows = x.shape[:2] + (1,) * (x.ndim - 2)
    if w is None or m is None:
        return x * (w.view(rows) if w is not None else m if m is not None else 1).to(x.dtype)  # type: ignore[union-attr]
    out = torch.empty_like(x)
    for chunk in _sample_chunks(x):
        out[chunk] = x[chunk] * (w.view(rows)[chunk] * m[chunk]).to(x.dtype)
    return out


def scale_backward(
    x: Tensor, w: Tensor | None, m: Tensor | None, grad: Tensor, native: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """dx, and the gradients of w and of m."""
    grad = _match_layout(grad, x)
    dx = torch.empty_like(x)
    dw, dm = (None if t is None else torch.empty_like(t, memory_format=torch.contiguous_format) for t in (w, m))
    if _can_run_native(x, native):
        b, c, n = _sizes(x)
        w, m = (None if t is None else t.contiguous() for t in (w, m))
        call_kernel("regard_scale", x, b, c, n, x, w, m, grad, dx, dw, dm)
        return dx, dw, dm
    rows = x.shape[:2] + (1,) * (x.ndim - 2)
    for chunk in _sample_chunks(x):
        wide, back = widen(x[chunk]), widen(grad[chunk])
        product = wide * back
        a = None if w is None else w.view(rows)[chunk]
        s = None if m is None else m[chunk]
        if dm is not None:
            dm[chunk] = (product if a is None else product * a).sum(1, keepdim=True)
        if dw is not None:
            dw[chunk] = (product if s is None else product * s).flatten(2).sum(-1)
        back = back if a is None else back * a
        dx[chunk] = back if s is None else back * s
    return dx, dw, dm
