"""Channel gates: one weight per channel, computed from the pooled channel."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.terms.normalizer import Normalizer, Sigmoid
from regard.common import checks
from regard.gates.base import Gate, check_odd, hidden_width, scale_map, wide_sigmoid
from regard.kernels import feature_maps


def _normalizer(normalize: Normalizer | None) -> Normalizer:
    """σ if no normalizer is given."""
    if normalize is None:
        return Sigmoid()
    checks.instance_of("normalize", normalize, Normalizer, "Softmax()")
    return normalize


def _channel_weights(normalize: Normalizer, scores: Tensor, like: Tensor) -> Tensor:  # "b c" -> "b c"
    """Weights of channels, in float32 at least."""
    return normalize.weights(scores.to(checks.accumulate_dtype(like.dtype)), None)


class GlobalAverage(Gate):
    """w = σ(z), z = mean over positions: squeeze and excite without the two layers. No parameters.

    `normalize` replaces σ, over the channels; with `Identity()` the mean itself is the weight.
    """

    def __init__(
        self, channels: int | None = None, dims: int | None = None, *, normalize: Normalizer | None = None
    ) -> None:
        super().__init__(channels, dims)
        self.normalize = _normalizer(normalize)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        return scale_map(x, _channel_weights(self.normalize, z, x), None, need_weights)


class SqueezeExcite(Gate):
    """w = σ(W₂ relu(W₁ z + b₁) + b₂), z = mean over positions  (Hu et al. 2018, eq. 2-4).

    The hidden width is channels / reduction, at least one; `hidden` sets it, for checkpoints that rounded it.
    `activation` replaces relu, `nn.Identity()` leaves it out; `normalize` replaces σ, over the channels: the weights of
    `Softmax()` sum to one.
    """

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        *,
        hidden: int | None = None,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] = F.relu,
        normalize: Normalizer | None = None,
    ) -> None:
        super().__init__(channels)
        if not callable(activation):
            raise TypeError(f"activation must be a function of a tensor, got {activation!r}; try nn.Identity()")
        hidden = hidden_width(channels, reduction) if hidden is None else hidden
        checks.positive_ints("SqueezeExcite", hidden=hidden)
        self.down = nn.Linear(channels, hidden, bias=bias)
        self.up = nn.Linear(hidden, channels, bias=bias)
        self.activation = activation
        self.normalize = _normalizer(normalize)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        scores = self.up(self.activation(self.down(z.to(x.dtype))))
        return scale_map(x, _channel_weights(self.normalize, scores, x), None, need_weights)


class ECA(Gate):
    """w = σ(conv_k(z)) along the channels, z = mean over positions; no bias  (Wang et al. 2020, eq. 9-12).

    k is the odd number next to |log₂(C) + 1| / 2: 3 for 16 to 64 channels, 5 up to 1024, 7 for 2048. `kernel` sets it.
    """

    def __init__(self, channels: int, *, kernel: int | None = None) -> None:
        super().__init__(channels)
        if kernel is None:
            near = int((math.log2(channels) + 1) / 2)
            kernel = near if near % 2 else near + 1
        self.conv = nn.Conv1d(1, 1, check_odd(kernel, "ECA"), padding=kernel // 2, bias=False)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        w = wide_sigmoid(self.conv(z.to(x.dtype).unsqueeze(1)).squeeze(1), x)
        return scale_map(x, w, None, need_weights)


class ChannelGate(Gate):
    """w = σ(MLP(mean over positions) + MLP(max over positions)), one MLP for both  (Woo et al. 2018, eq. 2)."""

    def __init__(self, channels: int, reduction: int = 16, *, bias: bool = False) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.down = nn.Linear(channels, hidden, bias=bias)
        self.up = nn.Linear(hidden, channels, bias=bias)

    def excite(self, mean: Tensor, maximum: Tensor, x: Tensor) -> Tensor:  # "b c" both -> "b c"
        """w from the pooled values."""
        pooled = torch.stack([mean, maximum]).to(x.dtype)
        return wide_sigmoid(self.up(F.relu(self.down(pooled))).sum(0), x)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, mean, maximum = feature_maps.mean_max_pool(x)
        return scale_map(x, self.excite(mean, maximum, x), None, need_weights)
