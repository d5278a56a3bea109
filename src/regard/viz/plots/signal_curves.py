"""A signal as a curve, over the attention to its samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, fit_scale, open_canvas

# inches: the width of the curve, its height per channel, the height of its weights, and the numbers beside them
_WIDE, _HIGH, _WEIGHTS, _GAP, _LEFT = 5.6, 0.95, 0.55, 0.08, 0.4
# channels that are drawn, at most
_MAX_CHANNELS = 6
_INK = "#1B2A41"


def draw_signal(
    signal: NDArray[np.float32], weights: Tensor, path: Path, title: str, *, notes: Sequence[str] = ()
) -> Path:  # "t c", "t"
    """One curve per channel over a common axis of time, with the weights of the samples below."""
    channels = min(signal.shape[1], _MAX_CHANNELS)
    scale = fit_scale([weights])
    times = np.arange(len(signal))
    explained = [*notes, f"{channels} of {signal.shape[1]} channels" if channels < signal.shape[1] else ""]
    below = channels * (_HIGH + _GAP)
    with open_canvas(path, title, explained, [], _LEFT + _WIDE + 0.1 + COLOUR_BAR, below + _WEIGHTS + 0.3) as canvas:
        for n in range(channels):
            axes = canvas.add_axes(_LEFT, n * (_HIGH + _GAP), _WIDE, _HIGH)
            axes.plot(times, signal[:, n], color=_INK, linewidth=0.9)
            axes.set(xlim=(-0.5, len(signal) - 0.5), xticks=[])
            axes.spines[["top", "right"]].set_visible(False)
        axes = canvas.add_axes(_LEFT, below, _WIDE, _WEIGHTS)
        # the same weights by colour, as in other figures, and by height
        axes.imshow(
            weights[None].numpy(),
            cmap=scale.colormap,
            norm=scale.norm(),
            aspect="auto",
            interpolation="nearest",
            extent=(-0.5, len(signal) - 0.5, 0.0, scale.high),
        )
        axes.plot(times, weights.numpy(), color="#FFFFFF", linewidth=0.9, drawstyle="steps-mid")
        axes.set(xlim=(-0.5, len(signal) - 0.5), ylim=(0.0, scale.high * 1.02))
        axes.set_xlabel("sample", fontsize=MIN_FONT, labelpad=1.0)
        canvas.add_colour_bar(_LEFT + _WIDE + 0.1, 0.0, below + _WEIGHTS, scale)
    return path
