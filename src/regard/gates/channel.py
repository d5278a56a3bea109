"""Channel gates: one weight for every channel, from what the channel is on average.  Which features matter?"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import checks
from regard.gates.base import Gate, factored, hidden_width, odd, sigma
from regard.kernels import feature_maps


class SqueezeExcite(Gate):
    """w = σ(W₂ relu(W₁ z + b₁) + b₂), z = mean over places  (Hu et al. 2018, eq. 2-4).

    The hidden width is channels / reduction, and one at least; `hidden` sets it, for checkpoints that rounded it.
    """

    def __init__(self, channels: int, reduction: int = 16, *, hidden: int | None = None, bias: bool = True) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction) if hidden is None else hidden
        checks.sizes("SqueezeExcite", hidden=hidden)
        self.down = nn.Linear(channels, hidden, bias=bias)
        self.up = nn.Linear(hidden, channels, bias=bias)

    def gated(self, x: Tensor, weighed: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        w = sigma(self.up(F.relu(self.down(z.to(x.dtype)))), x)
        return factored(x, w, None, weighed)


class ECA(Gate):
    """w = σ(conv_k(z)) along the channels, z = mean over places; no bias  (Wang et al. 2020, eq. 9-12).

    k is the odd number next to |log₂(C) + 1| / 2: 3 for 16 to 64 channels, 5 up to 1024, 7 for 2048. `kernel` sets it.
    """

    def __init__(self, channels: int, *, kernel: int | None = None) -> None:
        super().__init__(channels)
        if kernel is None:
            near = int((math.log2(channels) + 1) / 2)
            kernel = near if near % 2 else near + 1
        self.conv = nn.Conv1d(1, 1, odd(kernel, "ECA"), padding=kernel // 2, bias=False)

    def gated(self, x: Tensor, weighed: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        w = sigma(self.conv(z.to(x.dtype).unsqueeze(1)).squeeze(1), x)
        return factored(x, w, None, weighed)


class ChannelGate(Gate):
    """w = σ(MLP(mean over places) + MLP(max over places)), one MLP for both  (Woo et al. 2018, eq. 2)."""

    def __init__(self, channels: int, reduction: int = 16, *, bias: bool = False) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.down = nn.Linear(channels, hidden, bias=bias)
        self.up = nn.Linear(hidden, channels, bias=bias)

    def excite(self, mean: Tensor, most: Tensor, x: Tensor) -> Tensor:  # "b c" both -> "b c"
        """w, from what was pooled."""
        both = torch.stack([mean, most]).to(x.dtype)
        return sigma(self.up(F.relu(self.down(both))).sum(0), x)

    def gated(self, x: Tensor, weighed: bool) -> tuple[Tensor, Tensor | None]:
        x, mean, most = feature_maps.mean_max_pool(x)
        return factored(x, self.excite(mean, most, x), None, weighed)
