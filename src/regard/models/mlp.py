"""MLP: a multilayer perceptron that classifies images, with or without a gate on their rows."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import Need
from regard.common import checks
from regard.gates.base import Gate
from regard.gates.catalogue import optional_gate


class MLP(nn.Module):
    """logits = W_n relu(… relu(W_1 x + b_1) …) + b_n, x the pixels of an image; 784-128-64-10 for MNIST.

    `hidden` holds the widths of the hidden layers. `gate`, a name of GATES or a function that builds a gate for signals
    from a number of channels, weights the image before the first layer, read as a signal of one position per row, a
    channel per pixel of a row.
    """

    def __init__(
        self,
        channels: int,
        size: tuple[int, int],
        classes: int,
        *,
        hidden: Sequence[int] = (128, 64),
        gate: str | Callable[[int], nn.Module] | None = None,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        height, width = size
        checks.positive_ints("MLP", channels=channels, height=height, width=width, classes=classes)
        if not hidden or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in hidden):
            raise ValueError(f"hidden must be widths of hidden layers, 1 or more, got {hidden!r}; try hidden=(128, 64)")
        self.channels, self.size = channels, (height, width)
        make = optional_gate(gate, dims=1)
        self.gate = None if make is None else make(channels * width)
        widths = [channels * height * width, *hidden]
        layers = [nn.Linear(dim, wide) for dim, wide in pairwise(widths)]
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], classes)
        for layer in layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        if x.ndim != 4 or x.shape[1:] != (self.channels, *self.size):
            raise ValueError(
                f"x must be (images, {self.channels} channels, {self.size[0]}, {self.size[1]}), got {checks.shape(x)}; "
                "every pixel has its own weights, so the size of an image is fixed"
            )
        x = self._gated(x).flatten(1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(self.dropout(x))

    def _gated(self, x: Tensor) -> Tensor:  # "b c h w" -> "b (c w) h"
        signal = x.transpose(2, 3).flatten(1, 2)
        attention_observer = observer.current_observer()
        if attention_observer is None or not isinstance(self.gate, Gate):
            return signal if self.gate is None else self.gate(signal)

        def as_image(t: Tensor) -> Tensor:  # "b (c w) h" -> "b c h w"
            return t.unflatten(1, (self.channels, -1)).transpose(2, 3)

        # reported as weights of the pixels, so that a picture of them is upright
        with attention_observer.muted():
            out, weights = self.gate.attend(signal, need=Need(weights=True))[:2]
        assert weights is not None
        attention_observer.on_weighted("gate", self.gate, as_image(weights.expand_as(signal)), x, as_image(out))
        return out
