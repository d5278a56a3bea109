"""ConvNet: a small residual network with an attention gate in every block."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.attn import checks

MakeGate = Callable[[int], nn.Module]  # takes the number of channels


class ResidualBlock(nn.Module):
    """relu(skip(x) + gate(norm(conv(relu(norm(conv(x)))))))  (He et al. 2016; the gate: Hu et al. 2018)."""

    def __init__(self, dim: int, width: int, *, stride: int, gate: MakeGate | None) -> None:
        super().__init__()
        self.first = nn.Conv2d(dim, width, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.gate = nn.Identity() if gate is None else gate(width)
        same = stride == 1 and dim == width
        self.skip = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(dim, width, 1, bias=False), nn.BatchNorm2d(width))
        )
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:  # "b c h w"
        hidden = torch.relu(self.first_norm(self.first(x)))
        # positions are dropped before the convolution of the skip: as its stride they corrupt memory in torch 2.13 if a
        # map with few channels has them last
        strided = x[:, :, :: self.stride, :: self.stride]
        return torch.relu(self.skip(strided) + self.gate(self.second_norm(self.second(hidden))))


class ConvNet(nn.Module):
    """logits = W mean_hw(blocks(x)) + b: stages of residual blocks.

    `depths` holds the number of blocks per stage; stage n has `width`·2ⁿ channels, and all but the first halve the map.
    The convolution before them takes every `stem_stride`-th position.
    `gate` builds the gate at the end of every block, before the sum, from the number of channels.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        width: int = 32,
        depths: Sequence[int] = (1, 1, 1),
        stem_stride: int = 1,
        gate: MakeGate | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        checks.positive_ints("ConvNet", channels=channels, classes=classes, width=width, stem_stride=stem_stride)
        if not depths or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in depths):
            raise ValueError(f"depths must be blocks of each stage, 1 or more, got {depths!r}; try depths=(1, 1, 1)")
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stem_stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        dim = width
        for stage, depth in enumerate(depths):
            for n in range(depth):
                wide = width << stage
                blocks.append(ResidualBlock(dim, wide, stride=2 if stage and not n else 1, gate=gate))
                dim = wide
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Tensor) -> Tensor:  # "b c h w" -> "b d h' w'"
        """The feature map before pooling."""
        if x.ndim != 4 or x.shape[1] != self.stem[0].in_channels:
            raise ValueError(
                f"x must be (images, {self.stem[0].in_channels} channels, height, width), got {checks.shape(x)}; "
                "grey images have one channel, x.unsqueeze(1)"
            )
        return self.blocks(self.stem(x))

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        return self.head(self.dropout(self.features(x).mean((2, 3))))
