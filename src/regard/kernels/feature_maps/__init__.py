"""Passes of gates over a feature map "b c *s": pooling over positions or channels, scaling, SimAM.

A gate that pools a map and then scales it needs the gradient of both in one place. So `mean_pool`, `mean_max_pool` and
`channel_pool` return the map beside the pooled values: the scaling reads the returned map and sends one gradient back,
to which the pooling adds its own in place. The returned map has the same numbers; only the gate may use it.

Half types are computed in float32. In torch.compile, torch.export, torch.func and wherever else plain operations are
needed, the same equations run as such. `native` None uses the native kernels where they run, True requires them, False
uses torch.
"""

import torch
from torch import Tensor

from regard.kernels import triton
from regard.kernels.dispatch import choose_route
from regard.kernels.feature_maps import compute
from regard.kernels.feature_maps.autograd import ChannelPoolFunction, PoolFunction, ScaleFunction, SimAMFunction
from regard.kernels.feature_maps.compute import per_channel, spatial_axes
from regard.kernels.native_library import resolve_native
from regard.kernels.precision import widen


def simam(x: Tensor, lam: float, native: bool | None = None) -> Tensor:
    """x σ(d²/(4(v + λ)) + 1/2), d = x − mean over positions, v = Σd²/(n − 1)."""
    if _is_plain(x):
        return (x * torch.sigmoid(compute.inverse_energies(x, lam))).to(x.dtype)
    return SimAMFunction.apply(x, lam, resolve_native(native, x))


def triton_simam(x: Tensor, lam: float) -> Tensor:
    """`simam` by the kernel for GPUs; raises where it cannot run."""
    triton.check(x.device)
    if x.dtype == torch.float64:
        raise ValueError("backend 'triton' computes in float32, the map is float64; leave backend out")
    from regard.kernels.triton import simam

    return simam.simam(x, lam)


def mean_pool(x: Tensor, native: bool | None = None) -> tuple[Tensor, Tensor]:
    """x, and its mean over positions, "b c", in float32 at least."""
    if _is_plain(x):
        return x, widen(x).mean(spatial_axes(x))
    x, mean, _ = PoolFunction.apply(x, False, resolve_native(native, x))
    return x, mean


def mean_max_pool(x: Tensor, native: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x, and its mean and maximum over positions, "b c" each; the first of equal maxima has the gradient."""
    if _is_plain(x):
        wide = widen(x)
        return x, wide.mean(spatial_axes(x)), wide.flatten(2).max(-1).values
    return PoolFunction.apply(x, True, resolve_native(native, x))


def channel_pool(x: Tensor, w: Tensor | None = None, native: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x, and mean and maximum over the channels of w x, "b 1 *s" each, w "b c"; w x is not formed."""
    if _is_plain(x, w):
        y = widen(x) if w is None else widen(x) * per_channel(w, x)
        return x, y.mean(1, keepdim=True), y.max(1, keepdim=True).values
    return ChannelPoolFunction.apply(x, w, _resolve(native, x, w))


def scale(x: Tensor, w: Tensor | None = None, m: Tensor | None = None, native: bool | None = None) -> Tensor:
    """w m x: a weight per channel, "b c", a weight per position, "b 1 *s", or both."""
    if _is_plain(x, w, m):
        factor = m if w is None else per_channel(w, x) if m is None else per_channel(w, x) * m
        return x if factor is None else x * factor.to(x.dtype)
    return ScaleFunction.apply(x, w, m, _resolve(native, x, w, m))


def _resolve(native: bool | None, *tensors: Tensor | None) -> bool:
    """Whether the native kernels run, which read a map and its weights in one dtype."""
    return resolve_native(native, *(t for t in tensors if t is not None))


def _is_plain(*tensors: Tensor | None) -> bool:
    """Whether the call gets plain operations, which compiled, exported and transformed code all understand."""
    return choose_route(*tensors) != "direct"
