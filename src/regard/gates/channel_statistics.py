"""Channel gates that read more of a channel than its mean: norms, deviations, frequencies, covariances, codewords."""

import math
from functools import cache
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common import checks
from regard.gates.base import BatchNorm, Gate, flat, hidden_width, linear, scale_map, wide_sigmoid
from regard.kernels.feature_maps.compute import spatial_axes
from regard.kernels.precision import widen

_EPS = 1e-5  # as the authors of GCT and SRM


class GCT(Gate):
    """w_c = 1 + tanh(γ_c √C s_c / ‖s‖ + β_c), s_c = α_c ‖x_c‖  (Yang et al. 2020, eq. 1-5).

    Norms of the channels compete: with γ_c > 0 a strong channel grows at the cost of the others, with γ_c < 0 it
    shrinks. γ and β are zero at first: the gate is the identity.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.alpha = nn.Parameter(torch.ones(channels))
        self.gamma = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        s = self.alpha * (widen(x).square().sum(spatial_axes(x)) + _EPS).sqrt()
        share = s * math.sqrt(x.shape[1]) / (s.square().sum(1, keepdim=True) + _EPS).sqrt()
        return scale_map(x, 1 + torch.tanh(self.gamma * share + self.beta), None, need_weights)


class SRM(Gate):
    """w_c = σ(BN(u_c μ_c + v_c σ_c)), mean and standard deviation over positions  (Lee, Kim and Nam 2019, eq. 1-5).

    The two numbers are the style of a channel; no channel sees another one.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.style = nn.Parameter(torch.zeros(channels, 2))
        self.norm = BatchNorm(channels)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        wide = widen(x)
        mean = wide.mean(spatial_axes(x), keepdim=True)
        variance = (wide - mean).square().mean(spatial_axes(x))
        style = torch.stack([mean.flatten(1), (variance + _EPS).sqrt()], -1)
        z = (self.style * style).sum(-1)
        return scale_map(x, wide_sigmoid(self.norm(z.to(x.dtype)), x), None, need_weights)


@cache
def lowest_frequencies(count: int, dims: int) -> list[tuple[int, ...]]:
    """The first `count` frequencies of a cosine transform over so many axes, by their sum."""
    reach = range(math.ceil((math.factorial(dims) * count) ** (1 / dims)) + 1)
    return sorted(product(reach, repeat=dims), key=lambda frequency: (sum(frequency), frequency))[:count]


class FCA(Gate):
    """w = σ(W₂ relu(W₁ z)), z_c = mean_p x_cp Π_a cos(π f_a (p_a + ½) / n_a)  (Qin et al. 2021, eq. 7-10).

    The channels are divided into `frequencies` parts, and each part has another frequency f, the lowest first. The mean
    is frequency zero: with `frequencies=1` this is SqueezeExcite without biases.
    """

    def __init__(self, channels: int, reduction: int = 16, *, frequencies: int = 4) -> None:
        super().__init__(channels)
        checks.positive_ints("FCA", frequencies=frequencies)
        hidden = hidden_width(channels, reduction)
        self.frequencies = frequencies
        self.down = nn.Linear(channels, hidden, bias=False)
        self.up = nn.Linear(hidden, channels, bias=False)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        z = torch.einsum("bcn,cn->bc", widen(x).flatten(2), self._waves(x)) / x.shape[2:].numel()
        return scale_map(x, wide_sigmoid(self.up(F.relu(self.down(z.to(x.dtype)))), x), None, need_weights)

    def _waves(self, x: Tensor) -> Tensor:  # "c n": the product of cosines that each channel is multiplied by
        dtype, waves = checks.accumulate_dtype(x.dtype), []
        for frequency in lowest_frequencies(self.frequencies, x.ndim - 2):
            wave = torch.ones(1, dtype=dtype, device=x.device)
            for f, n in zip(frequency, x.shape[2:], strict=True):
                line = torch.cos(math.pi * f * (torch.arange(n, dtype=dtype, device=x.device) + 0.5) / n)
                wave = (wave.unsqueeze(1) * line).flatten()
            waves.append(wave)
        part = torch.arange(x.shape[1], device=x.device) * len(waves) // x.shape[1]
        return torch.stack(waves)[part]

    def extra_repr(self) -> str:
        return f"frequencies={self.frequencies}"


class GSoP(Gate):
    """w = σ(W₂ leaky(W₁ Σ)), Σ the covariance of the channels of W₀ x over positions  (Gao et al. 2019, GSoP-Net).

    Every row of Σ has a layer of its own, W₁, of four outputs; `reduction` sets the number of rows.
    """

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.down = nn.Linear(channels, hidden, bias=False)
        self.rows = nn.Parameter(torch.randn(hidden, 4, hidden) / math.sqrt(hidden))
        self.up = nn.Linear(4 * hidden, channels)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        narrow = widen(linear(self.down, x).flatten(2))
        centred = narrow - narrow.mean(-1, keepdim=True)
        covariance = centred @ centred.mT / narrow.shape[-1]
        read = F.leaky_relu(torch.einsum("bij,ikj->bik", covariance, self.rows.to(covariance.dtype)), 0.1)
        return scale_map(x, wide_sigmoid(self.up(read.flatten(1).to(x.dtype)), x), None, need_weights)


class ContextEncoding(Gate):
    """w = σ(W Σ_k relu(BN(e_k)) + b), e_k = Σ_j a_jk (x_j − d_k)  (Zhang et al. 2018, EncNet, eq. 1-2).

    Every position is assigned to `codewords` d_k by a_jk = softmax_k(−s_k ‖x_j − d_k‖²), with learned s_k. The
    (position, codeword, channel) differences are never formed.
    """

    def __init__(self, channels: int, *, codewords: int = 32) -> None:
        super().__init__(channels)
        checks.positive_ints("ContextEncoding", codewords=codewords)
        reach = 1 / math.sqrt(codewords * channels)
        self.codewords = nn.Parameter(torch.empty(codewords, channels).uniform_(-reach, reach))
        self.smoothing = nn.Parameter(torch.rand(codewords))
        self.norm = BatchNorm(codewords)
        self.excite = nn.Linear(channels, channels)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        tokens, words = widen(flat(x)), widen(self.codewords)
        lengths = tokens.square().sum(-1, keepdim=True) + words.square().sum(-1)
        shares = torch.softmax(-widen(self.smoothing) * (lengths - 2 * tokens @ words.mT), -1)  # "b n k"
        encoded = shares.mT @ tokens - shares.sum(1).unsqueeze(-1) * words
        e = F.relu(self.norm(encoded.to(x.dtype))).sum(1)
        return scale_map(x, wide_sigmoid(self.excite(e), x), None, need_weights)
