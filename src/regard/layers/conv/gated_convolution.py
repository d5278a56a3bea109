"""GatedConvolution: a convolution over positions with a gated linear unit, by linear layers with normalised rows."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.dropout import Dropout

# keeps the variance of the sum of two terms  (Gehring et al. 2017, 3.4)
HALF = math.sqrt(0.5)


class WeightNormLinear(nn.Module):
    """W x + b, W_i = g_i v_i / ‖v_i‖  (Salimans & Kingma 2016).

    W starts with elements of N(0, std²), b with zeros. Callers that use the layer many times with the same weights may
    read `weight` once and pass it.
    """

    def __init__(self, in_features: int, out_features: int, *, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(out_features, in_features).normal_(std=std))
        self.gain = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(out_features))

    @property
    def weight(self) -> Tensor:  # "o i"
        return self.direction * (self.gain / self.direction.norm(dim=1)).unsqueeze(-1)

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:  # "*b i" -> "*b o"
        return nn.functional.linear(x, self.weight if weight is None else weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.direction.shape[1]}, {self.direction.shape[0]}"


class GatedConvolution(nn.Module):
    """a_i ∘ σ(b_i), [a_i; b_i] = W [x_i; …; x_{i+k−1}] + c  (Dauphin et al. 2017).

    The weights are normalised and start with the variance 4 (1 − p) / (k · width): a gate near ½ quarters the variance
    of its input, and dropout p of the input raises it (Gehring et al. 2017, 3.5 and appendix A).
    """

    def __init__(self, width: int, kernel: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.kernel = width, kernel
        self.dropout = Dropout(dropout)
        fan_in = kernel * width
        self.linear = WeightNormLinear(fan_in, 2 * width, std=math.sqrt(4 * (1 - dropout) / fan_in))

    def forward(self, x: Tensor, left: int, right: int) -> Tensor:  # "b n c" -> "b left+n+right-k+1 c"
        """The outputs of all windows, with this many zeros before the first position and after the last."""
        padded = F.pad(self.dropout(x), (0, 0, left, right))
        n = padded.shape[1] - self.kernel + 1
        # one product of matrices: faster on a CPU than a convolution with the channels first
        return self.of_window(torch.cat([padded[:, j : j + n] for j in range(self.kernel)], dim=-1))

    def of_window(self, window: Tensor, weight: Tensor | None = None) -> Tensor:  # "*b k·c" -> "*b c"
        """The output of the k positions of a window, one after the other in the last axis."""
        return F.glu(self.linear(window, weight), dim=-1)
