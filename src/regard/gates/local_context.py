"""Gates of every value that look around it: whole lines, windows, large kernels; and groups of channels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common import checks
from regard.gates.base import BatchNorm, Gate, check_odd, convolution, head_width, wide_sigmoid
from regard.kernels.feature_maps.compute import spatial_axes
from regard.kernels.precision import widen


class StripPooling(Gate):
    """w = σ(W relu(Σ_axis BN(conv₃(means along the axis))) + b)  (Hou et al. 2020, eq. 1-4).

    A strip is the mean over all axes but one: a position sees its whole row and column, and nothing else of the map.
    """

    def __init__(self, channels: int, *, dims: int = 2) -> None:
        super().__init__(channels, dims)
        self.strips = nn.ModuleList(
            nn.Sequential(nn.Conv1d(channels, channels, 3, padding=1, bias=False), BatchNorm(channels))
            for _ in range(dims)
        )
        self.mix = convolution(dims, channels, channels, 1)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        wide, crossed = widen(x), torch.zeros((), dtype=x.dtype, device=x.device)
        for axis, strip in enumerate(self.strips, 2):
            others = [a for a in spatial_axes(x) if a != axis]
            line = strip((wide.mean(others) if others else wide).to(x.dtype))
            crossed = crossed + line.view([n if a in (0, 1, axis) else 1 for a, n in enumerate(x.shape)])
        w = wide_sigmoid(self.mix(F.relu(crossed)), x).to(x.dtype)
        return x * w, w if need_weights else None


class GatherExcite(Gate):
    """w = σ(mean over a window of 2e − 1 positions per axis)  (Hu et al. 2018, GE-θ⁻, eq. 1-2). No parameters.

    The windows are e positions apart, and a position has the window nearest below it. `extent` is e; an extent beyond
    the map gathers all of it, as GlobalAverage does.
    """

    def __init__(self, channels: int | None = None, *, extent: int = 4) -> None:
        super().__init__(channels)
        checks.positive_ints("GatherExcite", extent=extent)
        self.extent = extent

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        gathered = widen(x)
        for axis in spatial_axes(x):
            place = torch.arange(x.shape[axis], device=x.device)
            centre = place - place % self.extent
            window = ((centre.unsqueeze(1) - place).abs() < self.extent).to(gathered.dtype)
            means = window / window.sum(1, keepdim=True)
            gathered = (gathered.movedim(axis, -1) @ means.mT).movedim(-1, axis)
        w = torch.sigmoid(gathered).to(x.dtype)
        return x * w, w if need_weights else None

    def extra_repr(self) -> str:
        return f"extent={self.extent}"


class LargeKernel(Gate):
    """w = W conv₇(conv₅ x), each convolution one channel at a time, the second with dilation 3  (Guo et al. 2022, LKA).

    Together they reach 23 positions per axis for 25 + 49 + C numbers per channel. No σ: weights may be negative.
    """

    def __init__(self, channels: int, *, kernel: int = 5, far: int = 7, dilation: int = 3, dims: int = 2) -> None:
        super().__init__(channels, dims)
        for size in (kernel, far):
            check_odd(size, "LargeKernel")
        checks.positive_ints("LargeKernel", dilation=dilation)
        self.near = convolution(dims, channels, channels, kernel, groups=channels)
        self.far = convolution(dims, channels, channels, far, dilation=dilation, groups=channels)
        self.mix = convolution(dims, channels, channels, 1)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        w = self.mix(self.far(self.near(x))).to(x.dtype)
        return x * w, w if need_weights else None


class GroupEnhance(Gate):
    """w_gj = σ(γ_g norm_j(x_gj · mean_j x_gj) + β_g), per group g of channels  (Li, Hu and Yang 2019, SGE, eq. 1-4).

    The norm is (s − mean) / √(variance + 10⁻⁵) over positions. A position counts as much as it resembles the mean of
    its group; two numbers are learned per group.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__(channels)
        head_width("GroupEnhance", channels, groups)
        self.groups = groups
        self.gamma = nn.Parameter(torch.zeros(groups))
        self.beta = nn.Parameter(torch.ones(groups))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        parts = widen(x).flatten(2).unflatten(1, (self.groups, -1))  # "b g c n"
        s = (parts * parts.mean(-1, keepdim=True)).sum(2)
        s = s - s.mean(-1, keepdim=True)
        s = s * (s.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        w = torch.sigmoid(self.gamma.unsqueeze(-1) * s + self.beta.unsqueeze(-1))
        w = w.repeat_interleave(x.shape[1] // self.groups, 1).reshape(x.shape).to(x.dtype)
        return x * w, w if need_weights else None

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
