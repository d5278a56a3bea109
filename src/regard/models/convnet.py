"""ConvNet: a small residual network with an attention gate in every block, for signals, images and clips."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common import checks
from regard.gates.catalogue import optional_gate
from regard.layers.lengths import inside_lengths

MakeGate = Callable[[int], nn.Module]  # takes the number of channels
# convolutions by the number of axes of positions; of three, the first is time
_CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}
_NORMS: dict[int, type[nn.BatchNorm1d] | type[nn.BatchNorm2d] | type[nn.BatchNorm3d]] = {
    1: nn.BatchNorm1d,
    2: nn.BatchNorm2d,
    3: nn.BatchNorm3d,
}
_AXES = {1: "samples", 2: "height, width", 3: "frames, height, width"}
_KERNEL = 3


class CausalConvolution(nn.Module):
    """y_t = Σ_i W_i x_{t − i}: reads nothing behind its own position along the first axis of positions.

    The other axes are padded on both sides, so that they keep their sizes.
    """

    def __init__(self, dims: int, dim: int, width: int, strides: tuple[int, ...]) -> None:
        super().__init__()
        self.convolution = _CONVOLUTIONS[dims](dim, width, _KERNEL, stride=strides, bias=False)  # type: ignore[arg-type]
        # F.pad counts axes from the last one
        self.padding = (_KERNEL // 2,) * 2 * (dims - 1) + (_KERNEL - 1, 0)

    def forward(self, x: Tensor) -> Tensor:  # "b c t *s"
        return self.convolution(F.pad(x, self.padding))


def _convolution(dims: int, dim: int, width: int, stride: int, causal: bool) -> nn.Module:
    if causal:
        return CausalConvolution(dims, dim, width, _strides(dims, stride))
    convolution = _CONVOLUTIONS[dims]
    strides = _strides(dims, stride)
    return convolution(dim, width, _KERNEL, stride=strides, padding=_KERNEL // 2, bias=False)  # type: ignore[arg-type]


def _strides(dims: int, stride: int) -> tuple[int, ...]:
    """The stride of every axis: a clip keeps its frames."""
    return (1, stride, stride) if dims == 3 else (stride,) * dims


class ResidualBlock(nn.Module):
    """relu(skip(x) + gate(norm(conv(relu(norm(conv(x)))))))  (He et al. 2016; the gate: Hu et al. 2018)."""

    def __init__(
        self, dim: int, width: int, *, stride: int, gate: MakeGate | None, dims: int = 2, causal: bool = False
    ) -> None:
        super().__init__()
        self.first = _convolution(dims, dim, width, stride, causal)
        self.first_norm = _NORMS[dims](width)
        self.second = _convolution(dims, width, width, 1, causal)
        self.second_norm = _NORMS[dims](width)
        self.gate = nn.Identity() if gate is None else gate(width)
        same = stride == 1 and dim == width
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(_CONVOLUTIONS[dims](dim, width, 1, bias=False), _NORMS[dims](width))
        )
        self.kept = (slice(None), slice(None), *(slice(None, None, step) for step in _strides(dims, stride)))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # "b c *s", "b"
        """`lengths` are those of the output along its first axis of positions; what lies behind them is 0."""
        hidden = cut(torch.relu(self.first_norm(self.first(x))), lengths)
        # positions are dropped before the convolution of the skip: as its stride they corrupt memory in torch 2.13 if a
        # map with few channels has them last
        return cut(
            torch.relu(self.skip(x[self.kept]) + self._gated(self.second_norm(self.second(hidden)), lengths)), lengths
        )

    def _gated(self, x: Tensor, lengths: Tensor | None) -> Tensor:  # "b c *s"
        """The gate on the real positions alone: those of one length at a time."""
        if lengths is None or isinstance(self.gate, nn.Identity):
            return self.gate(x)
        gated = torch.zeros_like(x)
        for length in lengths.unique().tolist():
            rows = lengths == length
            gated[rows, :, :length] = self.gate(x[rows, :, :length])
        return gated


def cut(x: Tensor, lengths: Tensor | None) -> Tensor:  # "b c t *s", "b"
    """x with zeros behind the lengths, as a convolution finds them behind the end of a shorter map."""
    if lengths is None:
        return x
    outside = ~inside_lengths(lengths, x.shape[2])
    return x.masked_fill(outside[:, None].unflatten(-1, (x.shape[2], *[1] * (x.ndim - 3))), 0.0)


class ConvNet(nn.Module):
    """logits = W mean_s(blocks(x)) + b: stages of residual blocks.

    `depths` holds the number of blocks per stage; stage n has `width`·2ⁿ channels, and all but the first halve the map.
    The convolution before them takes every `stem_stride`-th position.
    `gate` is the gate at the end of every block, before the sum: a name of GATES, which options may follow, or a
    function that builds one from the number of channels.
    `dims` is the number of axes of positions: 1 for signals, 2 for images, 3 for clips, which keep their frames: only
    height and width are halved. With `causal` the map reads nothing behind a position of the first of these axes.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        width: int = 32,
        depths: Sequence[int] = (1, 1, 1),
        stem_stride: int = 1,
        gate: str | MakeGate | None = None,
        dropout: float = 0.1,
        dims: int = 2,
        causal: bool = False,
    ) -> None:
        super().__init__()
        if dims not in _CONVOLUTIONS:
            raise ValueError(
                f"ConvNet reads maps with 1, 2 or 3 axes of positions, got dims={dims!r}; clips have 3, a signal 1"
            )
        checks.positive_ints("ConvNet", channels=channels, classes=classes, width=width, stem_stride=stem_stride)
        if not depths or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in depths):
            raise ValueError(f"depths must be blocks of each stage, 1 or more, got {depths!r}; try depths=(1, 1, 1)")
        self.channels, self.dims = channels, dims
        gate = optional_gate(gate, dims)
        self._first_strides = [_strides(dims, stem_stride)[0]]  # strides along the first axis of positions
        self.stem = nn.Sequential(
            _convolution(dims, channels, width, stem_stride, causal), _NORMS[dims](width), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        dim = width
        for stage, depth in enumerate(depths):
            for n in range(depth):
                wide, stride = width << stage, 2 if stage and not n else 1
                self._first_strides.append(_strides(dims, stride)[0])
                blocks.append(ResidualBlock(dim, wide, stride=stride, gate=gate, dims=dims, causal=causal))
                dim = wide
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, classes)
        for module in self.modules():
            if isinstance(module, _CONVOLUTIONS[dims]):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def stride(self) -> int:
        """The positions of the input along its first axis of positions for one of the feature map."""
        return math.prod(self._first_strides)

    def features(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # "b c *s", "b" -> "b d *s'"
        """The feature map before pooling.

        `lengths` are those of clips or signals of different length, along the first axis of positions: the map of each
        is the output that it has alone, with zeros behind its end.
        """
        if x.ndim != 2 + self.dims or x.shape[1] != self.channels:
            examples, grey = ("images", "images") if self.dims == 2 else ("clips", "clips and most signals")
            raise ValueError(
                f"x must be ({examples}, {self.channels} channels, {_AXES[self.dims]}), got {checks.shape(x)}; "
                f"grey {grey} have one channel, x.unsqueeze(1)"
            )
        if lengths is None or bool((lengths == x.shape[2]).all()):
            return self.blocks(self.stem(x))
        x = cut(x, lengths)
        for part, stride in zip((self.stem, *self.blocks), self._first_strides, strict=True):
            lengths = -(-lengths // stride)
            x = cut(part(x), lengths) if part is self.stem else part(x, lengths)
        return x

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # "b c *s", "b" -> "b k"
        features = self.features(x, lengths)
        if lengths is None:
            return self.head(self.dropout(features.mean(tuple(range(2, features.ndim)))))
        # behind the end of a clip there are zeros
        positions = -(-lengths // self.stride) * math.prod(features.shape[3:])
        return self.head(self.dropout(features.flatten(2).sum(2) / positions.unsqueeze(-1)))
