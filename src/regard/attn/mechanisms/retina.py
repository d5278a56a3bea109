"""Retina: a multi-resolution glimpse of an image at one location, fine in the centre and coarse around it."""

import math

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.common import checks
from regard.kernels.precision import widen

# padding outside of an image: zeros, or its outermost pixels repeated
OUTSIDE = ("zeros", "edge")


class Retina(nn.Module):
    """ρ_s(x, l)_ij = mean of x over cell ij of `patch` × `patch` cells, 2ˢ pixels wide, around l  (Mnih et al. 2014).

    Scale s = 0, 1, … covers `patch`·2ˢ pixels each way in as many cells as scale 0. A location l = (x, y) has the
    coordinates of torch's grid_sample with align_corners=False: (−1, −1) is the upper left corner of the image, (1, 1)
    the lower right one, whatever its size. Cells need not be aligned to pixels: a mean weights every pixel by its
    overlap with the cell, which at scale 0 is bilinear interpolation. Pixels outside of the image are 0, or repeat its
    `edge`.

    The mean over a box is separable, ρ_s = R_s x C_sᵀ: two small products read a glimpse, and nothing is padded, cut or
    gathered.
    """

    def __init__(self, patch: int, scales: int = 1, *, outside: str = "zeros") -> None:
        super().__init__()
        checks.positive_ints("Retina", patch=patch, scales=scales)
        checks.known("outside", outside, OUTSIDE)
        self.patch, self.scales, self.outside = patch, scales, outside

    def extra_repr(self) -> str:
        return f"{self.patch}, {self.scales}, outside={self.outside!r}"

    def forward(self, x: Tensor, place: Tensor) -> Tensor:  # "b c h w", "b 2" -> "b c s p p"
        self._check(x, place)
        height, width = x.shape[-2:]
        down, across = (self._means(place[:, axis], side, x.dtype) for axis, side in ((1, height), (0, width)))
        read = down.flatten(1, 2).unsqueeze(1) @ x  # "b c s·p w"
        read = read.unflatten(2, (self.scales, self.patch)) @ across.unsqueeze(1).mT
        attention_observer = observer.current_observer()
        if attention_observer is not None:
            attention_observer.on_weighted("glimpse", self, _pixel_weights(down, across), x, read.mean((2, 3, 4)))
        return read

    def weights(self, place: Tensor, height: int, width: int) -> Tensor:  # "b 2" -> "b h w"
        """The overlap of each pixel with an average cell, over all scales: the weights that plots of a glimpse show."""
        checks.positive_ints("Retina", height=height, width=width)
        return _pixel_weights(
            *(self._means(place[:, axis], side, place.dtype) for axis, side in ((1, height), (0, width)))
        )

    def _means(self, middle: Tensor, side: int, dtype: torch.dtype) -> Tensor:  # "b" -> "b s p side"
        """R: the overlap of every pixel of a row with each cell, relative to the width of the cell."""
        # half types cannot distinguish the locations of a large image
        middle = widen(middle)
        width = 2.0 ** torch.arange(self.scales, dtype=middle.dtype, device=middle.device)  # "s"
        cell = torch.arange(self.patch, dtype=middle.dtype, device=middle.device) - self.patch / 2  # "p"
        cell_start = ((middle + 1) * (side / 2))[:, None, None] + width[:, None] * cell  # "b s p"
        cell_end = cell_start + width[:, None]
        pixel = torch.arange(side, dtype=middle.dtype, device=middle.device)
        first, last = pixel, pixel + 1
        if self.outside == "edge":
            first, last = first.masked_fill(pixel == 0, -math.inf), last.masked_fill(pixel == side - 1, math.inf)
        overlap = torch.minimum(cell_end[..., None], last) - torch.maximum(cell_start[..., None], first)
        return (overlap.clamp_min(0) / width[:, None, None]).to(dtype)

    def _check(self, x: Tensor, place: Tensor) -> None:
        for name, t in (("x", x), ("place", place)):
            checks.floating(name, t)
        if x.ndim != 4 or 0 in x.shape[1:]:
            raise ValueError(
                f"x must be images (batch, channels, height, width) for Retina, got {checks.shape(x)}; "
                "x.unsqueeze(0) adds a batch"
            )
        if place.shape != (x.shape[0], 2):
            raise ValueError(
                f"place must be one (x, y) per image for {x.shape[0]} images, got {checks.shape(place)}; "
                f"pass a tensor ({x.shape[0]}, 2)"
            )
        checks.same_device("place", place, x.device, of="x")


def _pixel_weights(down: Tensor, across: Tensor) -> Tensor:  # "b s p h", "b s p w" -> "b h w"
    """The mean of the weights of all cells."""
    return torch.einsum("bsh,bsw->bhw", down.mean(2), across.mean(2)) / down.shape[1]
