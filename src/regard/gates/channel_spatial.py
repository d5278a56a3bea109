"""Gates of channels and positions: at once (ContextGating), one after the other (CBAM), together (BAM, ConcurrentGate),
axis by axis (Coordinate), plane by plane (Triplet).
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common import checks
from regard.gates.base import BatchNorm, Gate, check_odd, convolution, hidden_width, linear, scale_map, wide_sigmoid
from regard.gates.channel import ChannelGate, SqueezeExcite
from regard.gates.spatial import Spatial, SpatialGate
from regard.kernels import feature_maps
from regard.kernels.precision import widen


class ContextGating(Gate):
    """w_j = σ(W x_j + b): every position weights its channels by a linear layer  (Miech, Laptev and Sivic 2017, eq. 1).

    The layer that copied tutorials call an attention head: a linear layer and a sigmoid, times its input.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.scores = nn.Linear(channels, channels)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        w = wide_sigmoid(linear(self.scores, x), x).to(x.dtype)
        return x * w, w if need_weights else None


class CBAM(Gate):
    """w = M_c(x) · M_s(M_c(x) · x): channels first, then positions; no residual  (Woo et al. 2018, eq. 1-3).

    `channel` is a ChannelGate and `spatial` a SpatialGate, each a gate of its own. M_c · x is never formed: its mean
    and maximum over the channels come from one pass over x, and one product makes the output.
    """

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        kernel: int = 7,
        *,
        dims: int = 2,
        order: Literal["max-mean", "mean-max"] = "max-mean",
        bias: bool = False,
    ) -> None:
        super().__init__(channels, dims)
        self.channel = ChannelGate(channels, reduction, bias=bias)
        self.spatial = SpatialGate(check_odd(kernel, "CBAM"), dims=dims, order=order)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, mean, maximum = feature_maps.mean_max_pool(x)
        w = self.channel.excite(mean, maximum, x)
        x, mean, maximum = feature_maps.channel_pool(x, w)
        return scale_map(x, w, self.spatial.excite(mean, maximum, x), need_weights)


# how BAM combines its two maps: in the paper, and in the authors' code
COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": torch.add, "product": torch.mul}


class BAM(Gate):
    """w = 1 + σ(M_c(x) + M_s(x))  (Park et al. 2018, eq. 1-5).

    M_c is an MLP of the mean over positions, M_s two dilated convolutions of fewer channels. The paper adds the
    two; the authors' code multiplies them: combine="product".
    """

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        *,
        dilation: int = 4,
        dims: int = 2,
        combine: Literal["sum", "product"] = "sum",
    ) -> None:
        super().__init__(channels, dims)
        checks.known("combine", combine, COMBINE)
        checks.positive_ints("BAM", dilation=dilation)
        self.combine = combine
        hidden = hidden_width(channels, reduction)
        self.down = nn.Linear(channels, hidden)
        self.norm = BatchNorm(hidden)
        self.up = nn.Linear(hidden, channels)
        narrow: list[nn.Module] = [convolution(dims, channels, hidden, 1), BatchNorm(hidden), nn.ReLU()]
        for _ in range(2):
            narrow += [convolution(dims, hidden, hidden, 3, dilation=dilation), BatchNorm(hidden), nn.ReLU()]
        self.places = nn.Sequential(*narrow, convolution(dims, hidden, 1, 1))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        channel = self.up(F.relu(self.norm(self.down(z.to(x.dtype)))))
        channel = channel.view(*channel.shape, *[1] * (x.ndim - 2))
        w = 1 + wide_sigmoid(COMBINE[self.combine](channel, self.places(x)), x)
        w = w.to(x.dtype)
        return x * w, w if need_weights else None

    def extra_repr(self) -> str:
        return f"combine={self.combine!r}"


class Coordinate(Gate):
    """w = Π_axis σ(F_axis f_axis), f = hswish(BN(F [means along each axis]))  (Hou et al. 2021, eq. 4-9).

    The mean over all other axes leaves one line of vectors per axis; the lines pass through one layer of few channels.
    """

    def __init__(self, channels: int, reduction: int = 32, *, min_hidden: int = 8, dims: int = 2) -> None:
        super().__init__(channels, dims)
        checks.positive_ints("Coordinate", min_hidden=min_hidden)
        hidden = max(min_hidden, hidden_width(channels, reduction))
        self.down = nn.Conv1d(channels, hidden, 1)
        self.norm = BatchNorm(hidden)
        self.up = nn.ModuleList(nn.Conv1d(hidden, channels, 1) for _ in range(dims))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        axes, wide = range(2, x.ndim), widen(x)
        lines = []
        for axis in axes:
            others = [a for a in axes if a != axis]
            lines.append(wide.mean(others) if others else wide)
        f = F.hardswish(self.norm(self.down(torch.cat(lines, -1).to(x.dtype))))
        w, out = None, x
        for axis, up, line in zip(axes, self.up, f.split(list(x.shape[2:]), -1), strict=True):
            shape = [n if a in (0, 1, axis) else 1 for a, n in enumerate(x.shape)]
            factor = wide_sigmoid(up(line), x).to(x.dtype).view(shape)
            out = out * factor
            if need_weights:
                w = factor if w is None else w * factor
        return out, w


class Triplet(Gate):
    """w = mean of σ(BN(conv_k[max; mean over the axis])), axis by axis, channels too  (Misra et al. 2021).

    Each of the three planes of an image's map, (height, width), (channels, width) and (height, channels), has a
    SpatialGate, which sees the map with another axis in the place of the channels (eq. 3-5). `branches` has them.
    """

    def __init__(self, channels: int | None = None, kernel: int = 7, *, dims: int = 2) -> None:
        super().__init__(channels, dims)
        kernel = check_odd(kernel, "Triplet")
        self.branches = nn.ModuleList(SpatialGate(kernel, dims=dims) for _ in range(dims + 1))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        w = torch.zeros_like(x)
        for axis, branch in enumerate(self.branches, 1):
            assert isinstance(branch, SpatialGate)
            w = w + branch.weights(x.transpose(1, axis)).transpose(1, axis) / len(self.branches)
        return x * w, w if need_weights else None


class ConcurrentGate(Gate):
    """w = w_channel + w_position: SqueezeExcite and Spatial side by side  (Roy et al. 2018, scSE, eq. 5)."""

    def __init__(self, channels: int, reduction: int = 2) -> None:
        super().__init__(channels)
        self.channel = SqueezeExcite(channels, reduction)
        self.spatial = Spatial(channels)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        w = self.channel.weights(x) + self.spatial.weights(x)
        return x * w, w if need_weights else None
