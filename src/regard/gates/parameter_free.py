"""Gates without parameters: SimAM, and saliency by maximum and by magnitude."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.common import checks
from regard.gates.base import Gate, check_map, scale_map
from regard.kernels import feature_maps
from regard.kernels.feature_maps import compute
from regard.kernels.precision import widen


class EnergyMinimum(NamedTuple):
    """The classifier that separates each neuron from the others of its channel, all of the shape of the map."""

    w: Tensor  # its slope, w_t
    b: Tensor  # its intercept, b_t
    energy: Tensor  # the energy at (w_t, b_t), which is minimal


class SimAM(Gate):
    """w = σ(1/e*), 1/e* = (x − μ)²/(4(v + λ)) + 1/2: distance from the channel mean  (Yang et al. 2021, eq. 5).

    e* is the minimal energy of a linear classifier that separates the neuron from the others of its channel; μ is
    their mean and v = Σ(x − μ)²/(n − 1). No parameters. The weight of a map of one position is σ(1/2).
    `backend="triton"` runs a kernel for GPUs, which nobody has measured.
    """

    def __init__(self, lam: float = 1e-4, backend: Literal["triton"] | None = None) -> None:
        super().__init__()
        checks.positive("lam", lam, "SimAM")
        if backend is not None:
            checks.known("backend", backend, ("triton",))
        self.lam, self.backend = float(lam), backend

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        simam = feature_maps.simam if self.backend is None else feature_maps.triton_simam
        out = simam(x, self.lam)
        return out, torch.sigmoid(compute.inverse_energies(x, self.lam)).to(x.dtype) if need_weights else None

    def solve(self, x: Tensor, *, statistics: Literal["shared", "others"] = "shared") -> EnergyMinimum:
        """w_t = 2(t − μ)/((t − μ)² + 2σ² + 2λ), b_t = −(t + μ) w_t/2 and e* = 4(σ² + λ)/((t − μ)² + 2σ² + 2λ).

        They minimise (1 − w t − b)² + mean_i (−1 − w x_i − b)² + λ w² for every neuron t  (Yang et al. 2021, eq. 2).
        "others" takes μ and σ² of all neurons of the channel but t, as the energy is written; "shared" takes the mean
        of the channel and v for all of them, as the gate does: its weights are σ(1/e*).
        """
        check_map(x, self.channels, self.dims, self)
        checks.known("statistics", statistics, ("shared", "others"))
        wide, axes, n = widen(x), compute.spatial_axes(x), x.shape[2:].numel()
        mean = wide.mean(axes, keepdim=True)
        distance = wide - mean
        total = distance.square().sum(axes, keepdim=True)
        if statistics == "shared":
            variance = (total / max(1, n - 1)).expand_as(wide)
        elif n > 1:
            # removing t moves the mean by d/(n − 1); the sum of squares loses the squares of t and of that move
            variance = (total - distance.square() * (n / (n - 1))).clamp_min(0.0) / (n - 1)
            mean = mean - distance / (n - 1)
            distance = wide - mean
        else:
            raise ValueError(
                f"statistics='others' needs two positions or more, got {checks.shape(x)}; try statistics='shared'"
            )
        denominator = distance.square() + 2 * (variance + self.lam)
        w = 2 * distance / denominator
        return EnergyMinimum(w, -(wide + mean) * w / 2, 4 * (variance + self.lam) / denominator)

    def extra_repr(self) -> str:
        return f"lam={self.lam:g}"


_POOLS = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}


class MaxSaliency(Gate):
    """w_j = 1 where x_j is the maximum of its window, else 0: max pooling read in place.

    Summed over its windows the output is max pooling. Windows do not overlap; None is one window of all positions. The
    first of equal maxima is taken.
    """

    def __init__(self, window: int | None = None) -> None:
        super().__init__()
        if window is not None:
            checks.positive_ints("MaxSaliency", window=window)
        self.window = window

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        with torch.no_grad():
            flat = x.flatten(2)
            if self.window is None:
                index = flat.argmax(-1, keepdim=True)
            else:
                _, indices = _POOLS[x.ndim](x, self.window, ceil_mode=True, return_indices=True)
                index = indices.flatten(2)
            # zeros_like keeps the memory layout of x
            w = torch.zeros_like(x)
            w.copy_(torch.zeros_like(flat).scatter_(-1, index, 1.0).view(x.shape))
        return x * w, w if need_weights else None

    def extra_repr(self) -> str:
        return f"window={self.window}"


class MagnitudeSaliency(Gate):
    """w_j = A_j / max A, A_j = Σ_c |x_cj|^p: positions of large activations  (Zagoruyko and Komodakis 2017, F_sum^p).

    A map of zeros has weights of zero.
    """

    def __init__(self, power: float = 2.0) -> None:
        super().__init__()
        checks.positive("power", power, "MagnitudeSaliency")
        if power < 1:
            raise ValueError(
                f"power must be 1 or more for MagnitudeSaliency, got {power}, which has no derivative at 0; try power=2"
            )
        self.power = float(power)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        size = widen(x).abs()
        # divided by the maximum, so that no power overflows
        top = size.flatten(1).amax(1).view(-1, *[1] * (x.ndim - 1))
        size = size / torch.where(top > 0, top, 1)
        active = size.pow(self.power).sum(1, keepdim=True)
        maximum = active.flatten(1).amax(1).view_as(top)
        w = active / torch.where(maximum > 0, maximum, 1)
        return scale_map(x, None, w, need_weights)

    def extra_repr(self) -> str:
        return f"power={self.power:g}"
