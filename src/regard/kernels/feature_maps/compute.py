"""Passes over a feature map "b c *s" without derivatives: native where a map lies channel by channel, else in torch.

The torch forms take a few samples at a time, so that what they need between two operations stays in the cache. They
keep the layout of x (channels last, too) and compute in float32 at least.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.kernels.native_library import call

# how many numbers are worked on at a time where there is no native kernel: 1 MB of float32
_AT_ONCE = 1 << 18


def whole(x: Tensor, native: bool) -> bool:
    """Can the native kernels take this map as it lies?"""
    return native and x.is_contiguous() and x.numel() > 0


def _pieces(x: Tensor) -> Iterator[slice]:
    """A few samples at a time."""
    step = max(1, _AT_ONCE // max(1, x[:1].numel()))
    for start in range(0, max(1, x.shape[0]), step):
        yield slice(start, start + step)


def _places(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x


def _pointer(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """b, c and the number of places"""
    b, c = x.shape[:2]
    return b, c, x.numel() // (b * c)


def _index(x: Tensor) -> torch.dtype:
    """Integers as wide as the reals: what the native kernels compare beside them."""
    return torch.int64 if x.dtype == torch.float64 else torch.int32


# x σ(d²/(4(v + λ)) + 1/2), d = x − mean, v = Σd²/(n − 1)


def energies(x: Tensor, lam: float) -> Tensor:
    """d²/(4(v + λ)) + 1/2: the inverse of SimAM's least energy. Differentiable; float32 at least."""
    wide, places = _wide(x), _places(x)
    d = wide - wide.mean(places, keepdim=True)
    squares = d * d
    n = max(1, x.shape[2:].numel() - 1)
    return squares / (4 * (squares.sum(places, keepdim=True) / n + lam)) + 0.5


def simam(x: Tensor, lam: float, native: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gated map, and mean and v + λ of every row, "b c"."""
    out = torch.empty_like(x)
    kind = _wide(x[:0]).dtype
    mean, v = (torch.empty(x.shape[:2], dtype=kind, device=x.device) for _ in range(2))
    if whole(x, native):
        b, c, n = _sizes(x)
        call("regard_simam", x, b * c, n, lam, x.data_ptr(), None, mean.data_ptr(), v.data_ptr(), out.data_ptr())
        return out, mean, v
    places, n = _places(x), max(1, x.shape[2:].numel() - 1)
    for some in _pieces(x):
        wide = _wide(x[some])
        centre = wide.mean(places, keepdim=True)
        gate = (wide - centre).square_()
        spread = gate.sum(places, keepdim=True) / n + lam
        torch.mul(wide, gate.div_(4 * spread).add_(0.5).sigmoid_(), out=gate)
        out[some] = gate
        mean[some], v[some] = centre.flatten(1), spread.flatten(1)
    return out, mean, v


def simam_backward(x: Tensor, mean: Tensor, v: Tensor, grad: Tensor, native: bool) -> Tensor:
    grad = _like(grad, x)
    dx = torch.empty_like(x)
    if whole(x, native):
        b, c, n = _sizes(x)
        pointers = (x.data_ptr(), grad.data_ptr(), mean.data_ptr(), v.data_ptr(), dx.data_ptr())
        call("regard_simam", x, b * c, n, 0.0, *pointers)
        return dx
    for some in _pieces(x):
        dx[some] = simam_slope(x[some], mean[some], v[some], grad[some])
    return dx


def simam_slope(x: Tensor, mean: Tensor, v: Tensor, grad: Tensor) -> Tensor:
    """g s + (h d − mean(h d))/(2v) − d Σ(h d²)/(2(n − 1)v²), s the gate, h = g x s(1 − s)."""
    places, n = _places(x), max(1, x.shape[2:].numel() - 1)
    rows = x.shape[:2] + (1,) * len(places)
    mean, v = mean.view(rows), v.view(rows)
    wide, grad = _wide(x), _wide(grad)
    d = wide - mean
    s = torch.sigmoid(d * d / (4 * v) + 0.5)
    hd = grad * wide * s * (1 - s) * d
    pull = (hd * d).sum(places, keepdim=True) / (2 * n * v * v)
    return grad * s + (hd - hd.mean(places, keepdim=True)) / (2 * v) - d * pull


def _like(grad: Tensor, x: Tensor) -> Tensor:
    """A gradient that lies as x does."""
    if x.is_contiguous():
        return grad.contiguous()
    return grad if grad.stride() == x.stride() else torch.empty_like(x).copy_(grad)


# mean, and the greatest, over the places of every channel


def pool(x: Tensor, top: bool, native: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """mean "b c"; and the greatest, and which place it is at, if asked for."""
    if whole(x, native):
        b, c, n = _sizes(x)
        mean = x.new_empty(b, c)
        most = x.new_empty(b, c) if top else None
        at = x.new_empty(b, c, dtype=_index(x)) if top else None
        call("regard_pool", x, b * c, n, x.data_ptr(), mean.data_ptr(), _pointer(most), _pointer(at), None)
        return mean, most, at
    mean = _wide(x).mean(_places(x)) if x.dtype.itemsize >= 4 else x.mean(_places(x), dtype=torch.float32)
    if not top:
        return mean, None, None
    most, at = x.flatten(2).max(-1)
    return mean, most.to(mean.dtype), at


def pool_backward(dx: Tensor, dmean: Tensor, dmost: Tensor | None, at: Tensor | None, native: bool) -> Tensor:
    """dx, which is changed, + dmean / n everywhere and dmost where the greatest was."""
    if whole(dx, native):
        b, c, n = _sizes(dx)
        dmean = dmean.contiguous()
        dmost = None if dmost is None else dmost.contiguous()
        call("regard_pool", dx, b * c, n, None, dmean.data_ptr(), _pointer(dmost), _pointer(at), dx.data_ptr())
        return dx
    rows = dx.shape[:2] + (1,) * (dx.ndim - 2)
    dx += (dmean / dx.shape[2:].numel()).view(rows)
    if dmost is not None and at is not None:
        dx += one_place(dmost, at, dx)
    return dx


def one_place(values: Tensor, at: Tensor, like: Tensor) -> Tensor:
    """A map of zeros but for `values` "b c", each at its place `at`."""
    there = torch.arange(like.shape[2:].numel(), device=like.device) == at.unsqueeze(-1)
    return torch.where(there, values.unsqueeze(-1), 0).view(like.shape)


# mean and the greatest over the channels of w x, w "b c"


def across(x: Tensor, w: Tensor | None, native: bool) -> tuple[Tensor, Tensor, Tensor]:
    """mean and greatest "b 1 *s", and which channel that is."""
    shape = (x.shape[0], 1, *x.shape[2:])
    if whole(x, native):
        b, c, n = _sizes(x)
        w = None if w is None else w.contiguous()
        mean, most, at = x.new_empty(shape), x.new_empty(shape), x.new_empty(shape, dtype=_index(x))
        pointers = (mean.data_ptr(), most.data_ptr(), at.data_ptr(), None, None)
        call("regard_across", x, b, c, n, x.data_ptr(), _pointer(w), *pointers)
        return mean, most, at
    means, mosts, ats = [], [], []
    for some in _pieces(x):
        y = _wide(x[some])
        if w is not None:
            y = y * w[some].view(*w[some].shape, *[1] * (x.ndim - 2))
        most, at = y.max(1, keepdim=True)
        means.append(y.mean(1, keepdim=True))
        mosts.append(most)
        ats.append(at)
    return torch.cat(means), torch.cat(mosts), torch.cat(ats)


def across_backward(
    x: Tensor, w: Tensor | None, at: Tensor, dx: Tensor, dmean: Tensor, dmost: Tensor, native: bool
) -> tuple[Tensor, Tensor | None]:
    """dx, which is changed, with what comes back from mean and greatest; and the gradient of w."""
    dw = None if w is None else torch.empty_like(w)
    if whole(x, native) and whole(dx, native):
        b, c, n = _sizes(x)
        dmean, dmost, w = dmean.contiguous(), dmost.contiguous(), None if w is None else w.contiguous()
        pointers = (dmean.data_ptr(), dmost.data_ptr(), at.data_ptr(), dx.data_ptr(), _pointer(dw))
        call("regard_across", x, b, c, n, x.data_ptr(), _pointer(w), *pointers)
        return dx, dw
    for some in _pieces(x):
        u = spread_channels(dmean[some], dmost[some], at[some], x[some])
        if w is None or dw is None:
            dx[some] += u
        else:
            dw[some] = (u * x[some]).flatten(2).sum(-1)
            dx[some] += u * w[some].view(*w[some].shape, *[1] * (x.ndim - 2))
    return dx, dw


def spread_channels(dmean: Tensor, dmost: Tensor, at: Tensor, like: Tensor) -> Tensor:
    """dmean / c in every channel and dmost in the greatest. Differentiable."""
    c = like.shape[1]
    channel = torch.arange(c, device=like.device).view(-1, *[1] * (like.ndim - 2))
    return dmean / c + torch.where(channel == at, dmost, 0)


# w m x, w "b c" or none, m "b 1 *s" or none


def scale(x: Tensor, w: Tensor | None, m: Tensor | None, native: bool) -> Tensor:
    if whole(x, native):
        b, c, n = _sizes(x)
        out = torch.empty_like(x)
        w, m = (None if t is None else t.contiguous() for t in (w, m))
        call("regard_scale", x, b, c, n, x.data_ptr(), _pointer(w), _pointer(m), None, out.data_ptr(), None, None)
        return out
    rows = x.shape[:2] + (1,) * (x.ndim - 2)
    if w is None or m is None:
        return x * (w.view(rows) if w is not None else m if m is not None else 1).to(x.dtype)  # type: ignore[union-attr]
    out = torch.empty_like(x)
    for some in _pieces(x):
        out[some] = x[some] * (w.view(rows)[some] * m[some]).to(x.dtype)
    return out


def scale_backward(
    x: Tensor, w: Tensor | None, m: Tensor | None, grad: Tensor, native: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """dx, and the gradients of w and of m."""
    grad = _like(grad, x)
    dx = torch.empty_like(x)
    dw, dm = (None if t is None else torch.empty_like(t, memory_format=torch.contiguous_format) for t in (w, m))
    if whole(x, native):
        b, c, n = _sizes(x)
        w, m = (None if t is None else t.contiguous() for t in (w, m))
        pointers = (grad.data_ptr(), dx.data_ptr(), _pointer(dw), _pointer(dm))
        call("regard_scale", x, b, c, n, x.data_ptr(), _pointer(w), _pointer(m), *pointers)
        return dx, dw, dm
    rows = x.shape[:2] + (1,) * (x.ndim - 2)
    for some in _pieces(x):
        wide, back = _wide(x[some]), _wide(grad[some])
        both = wide * back
        a = None if w is None else w.view(rows)[some]
        s = None if m is None else m[some]
        if dm is not None:
            dm[some] = (both if a is None else both * a).sum(1, keepdim=True)
        if dw is not None:
            dw[some] = (both if s is None else both * s).flatten(2).sum(-1)
        back = back if a is None else back * a
        dx[some] = back if s is None else back * s
    return dx, dw, dm
