"""ImageEncoder: a pretrained ViT inside of another model, and models above it."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.layers.dropout import Dropout
from regard.models.transfer.fine_tuned_encoder import FineTunedEncoder, fine_tuning_rates
from regard.models.vit import ViT


class ImageEncoder(FineTunedEncoder):
    """h = ViT((s x − μ) / σ), x from 0 to 1, whose lowest parts keep their weights  (Dosovitskiy et al. 2021).

    `scale` is s, `mean` and `std` are μ and σ of every channel, as the images were normalized in its pretraining.
    """

    transformer_name: ClassVar[str] = "vit"
    embedding_names: ClassVar[tuple[str, ...]] = ("patches", "class_token", "place")

    mean: Tensor  # "c 1 1"
    std: Tensor  # "c 1 1"

    def __init__(
        self, vit: ViT, *, frozen: int = 0, scale: float = 1.0, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.vit, self.scale = vit, scale
        # the pooler reads the class token for a classifier of its own, which this model has not
        self.vit.pooler = None
        # constants of the folder, which the run keeps beside its weights
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None], persistent=False)
        self.freeze(frozen)

    def forward(self, images: Tensor) -> Tensor:  # "b c h w" -> "b 1+p d"
        """The state of the class token, and those of the patches, row by row."""
        return self.vit((self.scale * images - self.mean) / self.std)


class ImageEncoderClassifier(nn.Module):
    """logits = W x + b, x the state of the class token or the mean of the patches, all fine-tuned together.

    The learning rate of a layer of the encoder is `layer_decay` times that of the layer above it; the linear layer has
    `head_rate` times that of the highest.
    """

    def __init__(
        self,
        encoder: ImageEncoder,
        classes: int,
        *,
        pooling: str = "first",
        dropout: float = 0.1,
        layer_decay: float = 0.9,
        head_rate: float = 10.0,
    ) -> None:
        super().__init__()
        checks.positive_ints("ImageEncoderClassifier", classes=classes)
        checks.known("pooling", pooling, ("first", "mean"))
        self.encoder, self.pooling = encoder, pooling
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(encoder.width, classes)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)
        self.lr_multipliers = fine_tuning_rates(self, layer_decay, head_rate)

    def forward(self, images: Tensor) -> Tensor:  # "b c h w" -> "b k"
        states = self.encoder(images)
        return self.output(self.dropout(states[:, 0] if self.pooling == "first" else states[:, 1:].mean(1)))


class PatchAnnotations(nn.Module):
    """The states of the patches of an ImageEncoder as a map, such as a captioner attends to."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.encoder, self.out_features = encoder, encoder.width

    def forward(self, images: Tensor) -> Tensor:  # "b c h w" -> "b d rows columns"
        vit = self.encoder.vit
        rows, columns = (size // vit.patches.kernel_size[0] for size in vit.image)
        return self.encoder(images)[:, 1:].transpose(1, 2).unflatten(2, (rows, columns))
