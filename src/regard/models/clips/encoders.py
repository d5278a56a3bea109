"""Encoders of clips: one state per step and place, each of the steps nearby."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.models.convnet import ConvNet, MakeGate


class EncodedClip(NamedTuple):
    """States of clips: "b t p d", at p places of every step, which are the cells of a grid; and the lengths "b"."""

    states: Tensor
    lengths: Tensor
    grid: tuple[int, int]  # (height, width), p = height · width


class ClipEncoder(nn.Module, ABC):
    """x "b t …" -> states "b t' p d", t' = ⌈t / stride⌉; a clip has the same states alone and in a batch."""

    channels: int
    is_signal: bool
    causal: bool
    stride: int  # steps of the input for one of the states
    out_features: int

    @abstractmethod
    def forward(self, x: Tensor, lengths: Tensor) -> EncodedClip: ...


def frame_windows(
    x: Tensor, lengths: Tensor, window: int, causal: bool
) -> tuple[Tensor, Tensor]:  # "b t c h w" -> "n window·c h w", bool "b t"
    """For every real frame, the frames around it, one below the other in the channels; and which frames are real.

    With `causal` these are the frame and those before it. Before the first frame stands the first again, and behind the
    last the last.
    """
    b, t, c = x.shape[:3]
    steps = torch.arange(t, device=x.device)
    behind = 0 if causal else (window - 1) // 2
    offsets = torch.arange(behind - window + 1, behind + 1, device=x.device)
    index = (steps[:, None] + offsets).clamp_min(0).expand(b, -1, -1)
    index = torch.minimum(index, lengths[:, None, None] - 1)  # "b t window"
    real = steps < lengths[:, None]
    windows = x[torch.arange(b, device=x.device)[:, None, None], index]  # "b t window c h w"
    return windows[real].reshape(-1, window * c, *x.shape[3:]), real


class FrameEncoder(ClipEncoder):
    """h_t = ConvNet(x_{t − 1}, x_t, x_{t + 1}): frames are encoded one by one, each with its neighbours as channels.

    `window` frames are encoded together; 1 is the frame alone, so that nothing of its motion is seen. With `causal`
    they are the frame and those before it. `gate` is that of every block, a name of GATES or a function of its
    channels.
    """

    is_signal = False
    stride = 1

    def __init__(
        self,
        channels: int,
        *,
        width: int = 16,
        depths: Sequence[int] | None = None,
        stem_stride: int | None = None,
        window: int = 3,
        gate: str | MakeGate | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__()
        checks.positive_ints("FrameEncoder", channels=channels, window=window)
        self.channels, self.window, self.causal = channels, window, causal
        depths = (1, 1) if depths is None else depths
        stem_stride = 2 if stem_stride is None else stem_stride
        self.net = ConvNet(window * channels, 1, width=width, depths=depths, stem_stride=stem_stride, gate=gate)
        self.out_features = self.net.head.in_features
        self.net.head = nn.Identity()  # type: ignore[assignment]

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedClip:  # "b t c h w"
        windows, real = frame_windows(x, lengths, self.window, self.causal)
        features = self.net.features(windows)  # "n d h w"
        states = features.new_zeros(*real.shape, features.shape[2] * features.shape[3], self.out_features)
        states[real] = features.flatten(2).mT
        return EncodedClip(states, lengths, (features.shape[2], features.shape[3]))


class SignalEncoder(ClipEncoder):
    """h = ConvNet(x) over the samples of a signal; every stage behind the first halves the number of states."""

    is_signal = True

    def __init__(
        self,
        channels: int,
        *,
        width: int = 16,
        depths: Sequence[int] | None = None,
        stem_stride: int | None = None,
        gate: str | MakeGate | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__()
        checks.positive_ints("SignalEncoder", channels=channels)
        self.channels, self.causal = channels, causal
        depths = (1, 1, 1) if depths is None else depths
        stem_stride = 1 if stem_stride is None else stem_stride
        self.net = ConvNet(
            channels, 1, dims=1, width=width, depths=depths, stem_stride=stem_stride, gate=gate, causal=causal
        )
        self.out_features, self.stride = self.net.head.in_features, self.net.stride
        self.net.head = nn.Identity()  # type: ignore[assignment]

    def forward(self, x: Tensor, lengths: Tensor) -> EncodedClip:  # "b t c"
        states = self.net.features(x.mT, lengths).mT.unsqueeze(2)
        return EncodedClip(states, -(-lengths // self.stride), (1, 1))
