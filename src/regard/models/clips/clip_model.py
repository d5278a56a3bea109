"""ClipModel: the interface of classifiers of clips, whatever their lengths."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.common import checks


class ClipOutput(NamedTuple):
    """The logits of clips, and the share of the attention on each of their steps."""

    logits: Tensor  # "b k"
    weights: Tensor | None  # "b t", 0 behind the end of a clip; None if the model has no attention over time


class ClipModel(nn.Module, ABC):
    """logits = f(x), x a batch of clips "b t c h w" or of signals "b t c", `lengths` the real steps of each.

    A clip has the same logits alone and in a batch with longer ones. With `causal` a state depends on no later step:
    `growing` gives the logits after every step at once, each those of the clip that ends there.
    """

    channels: int
    is_signal: bool
    causal: bool

    @abstractmethod
    def attend(self, x: Tensor, lengths: Tensor) -> ClipOutput:
        """The logits with the weights of the steps, for inputs that were checked."""

    @abstractmethod
    def growing_logits(self, x: Tensor) -> Tensor:  # "1 t …" -> "t k"
        """The logits after every step of a checked clip, by a model that is causal."""

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # "b t …", "b" -> "b k"
        lengths = self.check(x, lengths)
        return self.attend(x, lengths).logits

    def growing(self, x: Tensor) -> Tensor:  # "1 t …" -> "t k"
        """The logits of the clip that ends at each step, in one pass."""
        self.check(x, None)
        if not self.causal:
            raise ValueError(
                "growing needs a causal model, whose states depend on no later step; build it with causal=True"
            )
        if len(x) != 1:
            raise ValueError(f"growing takes one clip, got {len(x)}; call it for each, x[n : n + 1]")
        return self.growing_logits(x)

    def check(self, x: Tensor, lengths: Tensor | None) -> Tensor:  # -> "b"
        """The lengths, those of the batch if there are none; raises for other shapes."""
        checks.floating("x", x)
        axes = ("samples",) if self.is_signal else ("frames", "height", "width")
        expected = f"(clips, {axes[0]}, {self.channels} channels{''.join(f', {axis}' for axis in axes[1:])})"
        if x.ndim != len(axes) + 2 or x.shape[2] != self.channels or not x.shape[1]:
            raise ValueError(f"x must be {expected}, got {checks.shape(x)}; x.unsqueeze(2) adds an axis of one channel")
        if lengths is None:
            return torch.full((len(x),), x.shape[1], device=x.device)
        if lengths.shape != x.shape[:1] or int(lengths.min()) < 1 or int(lengths.max()) > x.shape[1]:
            raise ValueError(
                f"lengths must be one number from 1 to {x.shape[1]} per clip, got {lengths.tolist()}; count the real "
                "steps of each clip"
            )
        return lengths


def prefix_lengths(steps: int, device: torch.device) -> Tensor:  # -> "t"
    """The length of the clip that ends at each step."""
    return torch.arange(1, steps + 1, device=device)
