"""SpatialTransformerNetwork: an image sampled on a learned grid, and a ConvNet that classifies the crop."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.common import checks
from regard.models.convnet import ConvNet

# parameters θ of a transform, and the identity
TRANSFORMS: dict[str, tuple[float, ...]] = {"attention": (1.0, 0.0, 0.0), "affine": (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)}
# channels, and cells of the last map each way, of the network that finds θ
_CHANNELS, _CELLS = (16, 32), 6


class SpatialTransformer(nn.Module):
    """out_ij = Σ_nm x_nm max(0, 1 − |x_s − m|) max(0, 1 − |y_s − n|), (x_s, y_s) = A_θ (x_ij, y_ij, 1), θ = f(x)
    (Jaderberg et al. 2015, eq. 1 and 5).

    The grid (x_ij, y_ij) is regular and has `crop` = (height, width) cells; an image goes from −1 to 1, around it are
    zeros. A_θ is any matrix ("affine"), or (s, 0, t_x; 0, s, t_y) ("attention", eq. 2); it is the identity at first,
    and θ differs from that by less than 1. f has two convolutions and a hidden layer. Every output cell reads four
    pixels, by weights that sum to one inside the image: `regard.record` has their mean over the cells of the grid.
    """

    identity: Tensor

    def __init__(self, channels: int, crop: tuple[int, int], *, transform: str = "attention", hidden: int = 32) -> None:
        super().__init__()
        checks.known("transform", transform, TRANSFORMS)
        height, width = crop
        checks.positive_ints("SpatialTransformer", channels=channels, height=height, width=width, hidden=hidden)
        self.channels, self.crop, self.transform = channels, (height, width), transform
        first, second = _CHANNELS
        self.features = nn.Sequential(
            *(nn.Conv2d(channels, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
            *(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool2d(_CELLS), nn.Flatten()),
            *(nn.Linear(second * _CELLS**2, hidden), nn.ReLU()),
        )
        self.register_buffer("identity", torch.tensor(TRANSFORMS[transform]), persistent=False)
        self.theta = nn.Linear(hidden, len(TRANSFORMS[transform]))
        nn.init.zeros_(self.theta.weight)
        nn.init.zeros_(self.theta.bias)

    def matrix(self, x: Tensor) -> Tensor:  # "b c h w" -> "b 2 3"
        """A_θ."""
        # a crop that has left the image would have no gradient and never come back
        wide = checks.accumulate_dtype(x.dtype)  # one and a small shift are one in a half type
        theta = self.identity.to(wide) + torch.tanh(self.theta(self.features(x)).to(wide))
        if self.transform == "affine":
            return theta.unflatten(1, (2, 3))
        scale, right, down = theta.unbind(1)
        zero = torch.zeros_like(scale)
        return torch.stack([scale, zero, right, zero, scale, down], 1).unflatten(1, (2, 3))

    def grid(self, x: Tensor) -> Tensor:  # "b c h w" -> "b i j 2"
        """(x_s, y_s) of all output cells."""
        matrix = self.matrix(x)
        if not len(x):  # torch makes no grid for an empty batch
            return matrix.new_zeros(0, *self.crop, 2)
        return F.affine_grid(matrix, [len(x), self.channels, *self.crop], align_corners=False)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b c i j"
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"x must be (images, {self.channels} channels, height, width), got {checks.shape(x)}; "
                "grey images have one channel, x.unsqueeze(1)"
            )
        grid = self.grid(x)
        out = _sample(x, grid)
        attention_observer = observer.current_observer()
        if attention_observer is not None:
            weights, read = cell_weights(grid, x), out.mean((2, 3))
            attention_observer.on_weighted("glimpse", self, weights, x, read)
        return out


def _sample(x: Tensor, grid: Tensor) -> Tensor:  # "b c h w", "b i j 2" -> "b c i j"
    # places of a half type would be off by parts of a pixel
    wide = x.to(torch.promote_types(x.dtype, grid.dtype))
    grid = grid.to(wide.dtype)
    return F.grid_sample(wide, grid, mode="bilinear", padding_mode="zeros", align_corners=False).to(x.dtype)


def cell_weights(grid: Tensor, x: Tensor) -> Tensor:  # "b i j 2", "b c h w" -> "b h w"
    """The weight of every pixel in the mean over the cells of a sampled grid: the gradient of that mean."""
    with torch.enable_grad():
        pixels = torch.zeros_like(x[:, :1]).requires_grad_()
        (weights,) = torch.autograd.grad(_sample(pixels, grid.detach()).mean((2, 3)).sum(), pixels)
    return weights.squeeze(1)


class SpatialTransformerNetwork(nn.Module):
    """logits = network(transformer(x))  (Jaderberg et al. 2015): a ConvNet of what a SpatialTransformer samples.

    `crop` is the height and width of the sampled grid, half of the image's if None. The other options are those of
    SpatialTransformer and ConvNet; without the transformer the network is `ConvNet`.
    """

    def __init__(
        self,
        channels: int,
        size: tuple[int, int],
        classes: int,
        *,
        transform: str = "attention",
        crop: int | None = None,
        hidden: int = 32,
        width: int = 32,
        depths: Sequence[int] = (1, 1, 1),
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        height, wide = size
        sides = ((height + 1) // 2, (wide + 1) // 2) if crop is None else (crop, crop)
        self.transformer = SpatialTransformer(channels, sides, transform=transform, hidden=hidden)
        self.network = ConvNet(channels, classes, width=width, depths=depths, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        return self.network(self.transformer(x))
