"""ViT: the Transformer over patches of an image of Dosovitskiy et al., and its classifier."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.position_choices import PositionChoice
from regard.layers.transformer import Activation, EncoderLayer
from regard.models.bert import Pooler
from regard.models.language_model import init_weights


class ViT(nn.Module):
    """x = [class; W patches] + P; x += attention(norm x); x += W₂ gelu(W₁ norm x); norm x  (Dosovitskiy et al. 2021).

    `image` is the height and width of the images, or one number for both; `patch` that of the patches. The first state
    is that of the class token, then the patches follow row by row, in which order `positions` count them; their names
    are those of `Transformer`. With `pooler` the model has `pooler(states[:, 0])`.
    """

    def __init__(
        self,
        image: int | tuple[int, int],
        *,
        patch: int = 16,
        channels: int = 3,
        width: int = 192,
        layers: int = 4,
        heads: int = 3,
        feed: int | None = None,
        attention: str | Sequence[str] | None = None,
        positions: str = "learned",
        activation: Activation | None = None,
        eps: float = 1e-6,
        pooler: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        feed = 4 * width if feed is None else feed
        self.image = (image, image) if isinstance(image, int) else tuple(image)
        checks.positive_ints("ViT", image=self.image[0], patch=patch, channels=channels, layers=layers, feed=feed)
        if any(size % patch for size in self.image):
            raise ValueError(
                f"image must divide into patches, got image={image} and patch={patch}; "
                f"try image={max(self.image[0] // patch, 1) * patch}"
            )
        rows, columns = (size // patch for size in self.image)
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.class_token = nn.Parameter(torch.randn(width) * 0.02)
        self.positions = PositionChoice(positions, width, heads, 1 + rows * columns, False, "ViT")
        self.place = self.positions.added()
        self.dropout = Dropout(dropout)
        self.width = width
        self.layers = nn.ModuleList(
            EncoderLayer(
                width,
                feed,
                self.positions.multi_head(attention, n),
                residual="pre",
                dropout=dropout,
                norm=lambda dim: nn.LayerNorm(dim, eps),
                activation=nn.GELU() if activation is None else activation,
            )
            for n in range(1, layers + 1)
        )
        self.norm = nn.LayerNorm(width, eps)
        self.pooler = Pooler(width) if pooler else None
        init_weights(self, residual_std=0.02)

    def forward(self, images: Tensor) -> Tensor:  # "b c h w" -> "b 1+p d"
        if images.ndim != 4 or tuple(images.shape[1:]) != (self.patches.in_channels, *self.image):
            expected = ", ".join(map(str, (self.patches.in_channels, *self.image)))
            raise ValueError(f"images must be (b, {expected}) for this ViT, got {checks.shape(images)}; resize them")
        x = self.patches(images).flatten(2).transpose(1, 2)  # "b p d"
        x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        x = self.dropout(self.positions.add(self.place, x, torch.arange(x.shape[1], device=x.device)))
        for layer in self.layers:
            x = layer(x).out
        return self.norm(x)


class ViTClassifier(nn.Module):
    """W x + b, x the state of the class token."""

    def __init__(self, encoder: ViT, classes: int) -> None:
        super().__init__()
        checks.positive_ints("ViTClassifier", classes=classes)
        self.encoder = encoder
        self.output = nn.Linear(encoder.width, classes)

    def forward(self, images: Tensor) -> Tensor:  # "b c h w" -> "b classes"
        return self.output(self.encoder(images)[:, 0])
