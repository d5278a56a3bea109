"""Blocks that choose between several convolutions of the same map, by attention over them."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.common import checks
from regard.gates.base import BatchNorm, check_map, check_odd, check_only_weights, convolution, hidden_width
from regard.kernels.feature_maps.compute import spatial_axes
from regard.kernels.precision import widen

_LEAST_HIDDEN = 32  # as the authors of both blocks


class Branches(nn.Module):
    """Σ_m w_mc U_mc, w = softmax_m(A_m relu(BN(W z))), z = mean over positions of Σ_m U_m: a query per channel.

    U_m = relu(BN(conv_m x)) are the branches; the weights are "b c 1 m".
    """

    def __init__(self, channels: int, branches: Sequence[nn.Module], dims: int, hidden: int) -> None:
        super().__init__()
        self.channels, self.dims = channels, dims
        self.branches = nn.ModuleList(nn.Sequential(branch, BatchNorm(channels), nn.ReLU()) for branch in branches)
        self.down, self.norm = nn.Linear(channels, hidden, bias=False), BatchNorm(hidden)
        self.up = nn.Linear(hidden, len(branches) * channels)

    def forward(self, x: Tensor) -> Tensor:  # "b c *s" -> "b c *s"
        return self.attend(x).out

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights of the branches, "b c 1 m", if `need` asks for them."""
        check_map(x, self.channels, self.dims, self)
        check_only_weights(need, self)
        values = [branch(x) for branch in self.branches]
        z = torch.stack([widen(value).mean(spatial_axes(x)) for value in values]).sum(0).to(x.dtype)
        scores = self.up(F.relu(self.norm(self.down(z)))).unflatten(-1, (len(values), self.channels))
        weights = torch.softmax(widen(scores), 1).to(x.dtype)  # "b m c"
        shares = weights.view(*weights.shape, *[1] * (x.ndim - 2)).unbind(1)
        if (attention_observer := observer.current_observer()) is not None:
            share, value = torch.cat(shares, 1), torch.cat(values, 1)  # "b (m c) *s": the channels of all branches
            attention_observer.on_weighted("gate", self, share, value, share * value)
        out = sum((share * value for share, value in zip(shares, values, strict=True)), torch.zeros_like(shares[0]))
        return Attended(out, weights.mT.unsqueeze(2) if need.weights else None)


class SelectiveKernel(Branches):
    """`Branches` of 3 × 3 convolutions with dilation 1, 2, ..., `kernels`  (Li et al. 2019, SK, eq. 1-6).

    Dilation m stands for a kernel of 2m + 1. The hidden width is channels / reduction and at least 32.
    """

    def __init__(self, channels: int, reduction: int = 16, *, kernels: int = 2, dims: int = 2) -> None:
        checks.positive_ints("SelectiveKernel", channels=channels, kernels=kernels)
        branches = [convolution(dims, channels, channels, 3, dilation=m, bias=False) for m in range(1, kernels + 1)]
        super().__init__(channels, branches, dims, max(_LEAST_HIDDEN, hidden_width(channels, reduction)))


class SplitAttention(Branches):
    """`Branches` of `radix` equal convolutions, between which channels choose  (Zhang et al. 2020, ResNeSt, eq. 1-2).

    One cardinal group; the hidden width is radix · channels / reduction and at least 32.
    """

    def __init__(self, channels: int, reduction: int = 4, *, radix: int = 2, kernel: int = 3, dims: int = 2) -> None:
        checks.positive_ints("SplitAttention", channels=channels, radix=radix)
        kernel = check_odd(kernel, "SplitAttention")
        branches = [convolution(dims, channels, channels, kernel, bias=False) for _ in range(radix)]
        super().__init__(channels, branches, dims, max(_LEAST_HIDDEN, hidden_width(radix * channels, reduction)))
