"""Glimpse: a picture read at one place, sharp in the middle and coarse around it."""

import math

import torch
from torch import Tensor, nn

from regard.attn import checks, observer

# what lies around a picture: nothing, or its outermost pixels on and on
OUTSIDE = ("zeros", "edge")


class Retina(nn.Module):
    """ρ_s(x, l)_ij = mean of x over cell ij of `patch` × `patch` cells, 2ˢ pixels wide, around l  (Mnih et al. 2014).

    Scale s = 0, 1, … sees `patch`·2ˢ pixels each way in as many cells as scale 0. A place l = (x, y) is that of
    torch's grid_sample with align_corners=False: (−1, −1) is the upper left corner of the picture, (1, 1) the lower
    right one, whatever its sides are. Cells need not lie on whole pixels: a mean weighs every pixel by how much of it
    lies in the cell, which at scale 0 is bilinear interpolation. What lies outside of the picture is 0, or repeats its
    `edge`.

    A mean over a box is that over its rows of that over its columns, ρ_s = R_s x C_sᵀ: two small products read a
    glimpse, and nothing is padded, cut or gathered.
    """

    def __init__(self, patch: int, scales: int = 1, *, outside: str = "zeros") -> None:
        super().__init__()
        checks.sizes("Retina", patch=patch, scales=scales)
        checks.known("outside", outside, OUTSIDE)
        self.patch, self.scales, self.outside = patch, scales, outside

    def extra_repr(self) -> str:
        return f"{self.patch}, {self.scales}, outside={self.outside!r}"

    def forward(self, x: Tensor, place: Tensor) -> Tensor:  # "b c h w", "b 2" -> "b c s p p"
        self._check(x, place)
        high, wide = x.shape[-2:]
        down, across = (self._means(place[:, axis], side, x.dtype) for axis, side in ((1, high), (0, wide)))
        read = down.flatten(1, 2).unsqueeze(1) @ x  # "b c s·p w"
        read = read.unflatten(2, (self.scales, self.patch)) @ across.unsqueeze(1).mT
        ear = observer.listener()
        if ear is not None:
            ear.glimpsed(self, _spread(down, across), x, read.mean((2, 3, 4)))
        return read

    def weights(self, place: Tensor, height: int, width: int) -> Tensor:  # "b 2" -> "b h w"
        """How much of each pixel is in an average cell, over all scales: what a glimpse is drawn from."""
        checks.sizes("Retina", height=height, width=width)
        return _spread(*(self._means(place[:, axis], side, place.dtype) for axis, side in ((1, height), (0, width))))

    def _means(self, middle: Tensor, side: int, dtype: torch.dtype) -> Tensor:  # "b" -> "b s p side"
        """R: how much of every pixel of a row lies in each cell, by the cell's width."""
        # half types cannot tell the places of a large picture apart
        middle = middle.to(checks.widened(middle.dtype))
        width = 2.0 ** torch.arange(self.scales, dtype=middle.dtype, device=middle.device)  # "s"
        nth = torch.arange(self.patch, dtype=middle.dtype, device=middle.device) - self.patch / 2  # "p"
        begins = ((middle + 1) * (side / 2))[:, None, None] + width[:, None] * nth  # "b s p"
        ends = begins + width[:, None]
        pixel = torch.arange(side, dtype=middle.dtype, device=middle.device)
        first, last = pixel, pixel + 1
        if self.outside == "edge":
            first, last = first.masked_fill(pixel == 0, -math.inf), last.masked_fill(pixel == side - 1, math.inf)
        overlap = torch.minimum(ends[..., None], last) - torch.maximum(begins[..., None], first)
        return (overlap.clamp_min(0) / width[:, None, None]).to(dtype)

    def _check(self, x: Tensor, place: Tensor) -> None:
        for name, t in (("x", x), ("place", place)):
            checks.floating(name, t)
        if x.ndim != 4 or 0 in x.shape[1:]:
            raise ValueError(
                f"x must be pictures (batch, channels, height, width) for Retina, got {checks.shape(x)}; "
                "x.unsqueeze(0) adds a batch"
            )
        if place.shape != (x.shape[0], 2):
            raise ValueError(
                f"place must be one (x, y) for each of the {x.shape[0]} pictures, got {checks.shape(place)}; "
                f"pass a tensor ({x.shape[0]}, 2)"
            )
        checks.same_device("place", place, x.device, of="x")


def _spread(down: Tensor, across: Tensor) -> Tensor:  # "b s p h", "b s p w" -> "b h w"
    """The mean over all cells of what each of them reads."""
    return torch.einsum("bsh,bsw->bhw", down.mean(2), across.mean(2)) / down.shape[1]
