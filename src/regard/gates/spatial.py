"""Spatial gates: one weight per position, the same for all channels."""

from typing import Literal

import torch
from torch import Tensor, nn

from regard.attn.terms.normalizer import Normalizer, Sigmoid
from regard.common import checks
from regard.gates.base import BatchNorm, Gate, check_odd, convolution, flat, scale_map, wide_sigmoid
from regard.kernels import feature_maps

# the order of the two inputs of the convolution: the authors of CBAM, and timm
ORDERS = ("max-mean", "mean-max")


class SpatialGate(Gate):
    """w = σ(BN(conv_k[max over channels; mean over channels]))  (Woo et al. 2018, eq. 3).

    Checkpoints differ in which of the two comes first: `order` is "max-mean" (the authors) or "mean-max" (timm).
    """

    def __init__(self, kernel: int = 7, *, dims: int = 2, order: Literal["max-mean", "mean-max"] = "max-mean") -> None:
        super().__init__(None, dims)
        checks.known("order", order, ORDERS)
        self.order = order
        self.conv = convolution(dims, 2, 1, check_odd(kernel, "SpatialGate"), bias=False)
        self.norm = BatchNorm(1, momentum=0.01)

    def excite(self, mean: Tensor, maximum: Tensor, x: Tensor) -> Tensor:  # "b 1 *s" both -> "b 1 *s"
        """w from the pooled channels."""
        pooled = [maximum, mean] if self.order == "max-mean" else [mean, maximum]
        return wide_sigmoid(self.norm(self.conv(torch.cat(pooled, 1).to(x.dtype))), x)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, mean, maximum = feature_maps.channel_pool(x)
        return scale_map(x, None, self.excite(mean, maximum, x), need_weights)

    def extra_repr(self) -> str:
        return f"order={self.order!r}"


class Spatial(Gate):
    """w_j = normalize(u · x_j + b): one query u over all positions, read in place  (Roy et al. 2018, sSE: σ).

    With Softmax the weights sum to one over the positions; the map then shrinks by about the number of positions.
    """

    def __init__(self, channels: int, *, normalize: Normalizer | None = None) -> None:
        super().__init__(channels)
        if normalize is not None:
            checks.instance_of("normalize", normalize, Normalizer, "Sigmoid()")
        self.query = nn.Linear(channels, 1)
        self.normalize = Sigmoid() if normalize is None else normalize

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        scores = self.query(flat(x)).transpose(1, 2)  # "b 1 n"
        w = self.normalize.weights(scores, None).to(checks.accumulate_dtype(x.dtype))
        return scale_map(x, None, w.reshape(x.shape[0], 1, *x.shape[2:]), need_weights)
