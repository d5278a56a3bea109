"""Spatial gates: one weight for every place, the same for all channels.  Where does it matter?"""

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.terms.normalizer import Normalizer, Sigmoid
from regard.gates.base import BatchNorm, Gate, convolution, factored, odd, sigma
from regard.kernels import feature_maps

# in which order a convolution gets the two: the authors of CBAM, and timm
ORDERS = ("max-mean", "mean-max")


class SpatialGate(Gate):
    """w = σ(BN(conv_k[max over channels; mean over channels]))  (Woo et al. 2018, eq. 3).

    Checkpoints differ in which of the two comes first: `order` is "max-mean" (the authors) or "mean-max" (timm).
    """

    def __init__(self, kernel: int = 7, *, dims: int = 2, order: str = "max-mean") -> None:
        super().__init__(None, dims)
        checks.known("order", order, ORDERS)
        self.order = order
        self.conv = convolution(dims, 2, 1, odd(kernel, "SpatialGate"), bias=False)
        self.norm = BatchNorm(1, momentum=0.01)

    def excite(self, mean: Tensor, most: Tensor, x: Tensor) -> Tensor:  # "b 1 *s" both -> "b 1 *s"
        """w, from what was found across the channels."""
        both = [most, mean] if self.order == "max-mean" else [mean, most]
        return sigma(self.norm(self.conv(torch.cat(both, 1).to(x.dtype))), x)

    def gated(self, x: Tensor, weighed: bool) -> tuple[Tensor, Tensor | None]:
        x, mean, most = feature_maps.channel_pool(x)
        return factored(x, None, self.excite(mean, most, x), weighed)

    def extra_repr(self) -> str:
        return f"order={self.order!r}"


class Spatial(Gate):
    """w_j = normalize(u · x_j + b): one query u over all places, read in place  (Roy et al. 2018, sSE: σ).

    With Softmax the places compete, and their weights sum to one; the map then shrinks by about the number of places.
    """

    def __init__(self, channels: int, *, normalize: Normalizer | None = None) -> None:
        super().__init__(channels)
        if normalize is not None:
            checks.term("normalize", normalize, Normalizer, "Sigmoid()")
        self.query = nn.Linear(channels, 1)
        self.normalize = Sigmoid() if normalize is None else normalize

    def gated(self, x: Tensor, weighed: bool) -> tuple[Tensor, Tensor | None]:
        scores = self.query(x.flatten(2).transpose(1, 2)).transpose(1, 2)  # "b 1 n"
        w = self.normalize.weights(scores, None).to(checks.widened(x.dtype))
        return factored(x, None, w.reshape(x.shape[0], 1, *x.shape[2:]), weighed)
