"""RandomFeatures: the feature map of Performer."""

import math

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.kernels.precision import widen

__all__ = ["RandomFeatures"]

# the greatest exponent of a feature: products of two and their sums stay finite in float32
_GREATEST_EXPONENT = 40.0


class RandomFeatures(nn.Module):
    """φ(x)_r = exp(w_r·x′ − ‖x′‖²/2) / √m, x′ = x d^(−¼): E φ(q)·φ(k) = exp(q·k/√d)  (Choromanski et al. 2021, FAVOR+).

    `features` is m. With `orthogonal` the vectors w of every block of d are orthogonal, with the lengths of Gaussian
    ones, which lowers the variance. `generator` draws them; `draw` replaces them. They are a buffer. The variance grows
    with e^(‖x‖²/√d), and from about ‖x‖² = 300 √d on the features of a row are zero in float32: normalize long queries
    and keys first.

        Attention(Kernel(RandomFeatures(64, 256)), normalize=Sum())
    """

    directions: Tensor

    def __init__(
        self, dim: int, features: int, *, orthogonal: bool = True, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        checks.positive_ints("RandomFeatures", dim=dim, features=features)
        self.orthogonal = orthogonal
        self.register_buffer("directions", torch.empty(features, dim))
        self.draw(generator)

    @torch.no_grad()
    def draw(self, generator: torch.Generator | None = None) -> None:
        """Draws other directions, as a training does from time to time."""
        features, dim = self.directions.shape
        if self.directions.is_meta:
            return
        if not self.orthogonal:
            drawn = torch.randn(features, dim, generator=generator)
        else:
            drawn = torch.cat([_rotation(dim, generator) for _ in range(math.ceil(features / dim))])[:features]
            drawn = drawn * torch.randn(features, dim, generator=generator).norm(dim=-1, keepdim=True)
        self.directions.copy_(drawn)

    def forward(self, x: Tensor) -> Tensor:  # "*b n d" -> "*b n m"
        x = widen(x) * x.shape[-1] ** -0.25
        directions = self.directions.to(x.dtype)
        # only an x along a direction w has an exponent near its bound, ‖w‖²/2
        exponents = (x @ directions.T - x.square().sum(-1, keepdim=True) / 2).clamp_max(_GREATEST_EXPONENT)
        return torch.exp(exponents) / math.sqrt(len(directions))

    def extra_repr(self) -> str:
        return f"{self.directions.shape[1]}, {len(self.directions)}"


def _rotation(dim: int, generator: torch.Generator | None) -> Tensor:
    """A random orthogonal matrix. The signs of R's diagonal make it uniform: QR alone prefers some orthants."""
    q, r = torch.linalg.qr(torch.randn(dim, dim, generator=generator))
    return q * r.diagonal().sign()
