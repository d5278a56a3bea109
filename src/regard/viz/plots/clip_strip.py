"""A clip as a strip of frames, tinted by the attention to each, over the attention to its places."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, Scale, fit_scale, open_canvas
from regard.viz.plots.picture_panels import draw_overlay, image_inches

# inches: the longer side of a frame, the gap between frames, the line of text below a frame; frames per row
_SIDE, _GAP, _LINE, _ACROSS = 0.72, 0.05, 0.16, 8
# frames that are drawn, at most
_MAX_FRAMES = 60
# the share of the weight's colour in a tinted frame, and the width of the line around it
_TINT, _BORDER = 0.4, 1.6


def draw_strip(
    frames: NDArray[np.uint8],
    path: Path,
    title: str,
    *,
    steps: Tensor | None = None,
    places: Tensor | None = None,
    notes: Sequence[str] = (),
) -> Path:  # "t h w c", "t", "t rows columns"
    """Frames in the order of time, tinted by `steps`, the weight of each; `places` are drawn below, each by itself.

    Of a long clip frames at equal distances are drawn.
    """
    shown = np.unique(np.linspace(0, len(frames) - 1, min(len(frames), _MAX_FRAMES)).round().astype(int)).tolist()
    pictures = np.repeat(frames, 3, -1) if frames.shape[-1] == 1 else frames
    wide, high = image_inches((1, 1), _tensor(pictures[0]), _SIDE)
    across = min(len(shown), _ACROSS)
    pitch = 1 + (places is not None)
    row_height = pitch * (high + _GAP) + _LINE + _GAP
    rows = -(-len(shown) // across)
    scales = {
        "steps": None if steps is None else replace(fit_scale([steps]), name="weight of a frame"),
        "places": None if places is None else replace(fit_scale([places]), name="weight of a place"),
    }
    drawn = [scale for scale in scales.values() if scale is not None]
    left_of_bars = across * (wide + _GAP) + 0.05
    bar_height = max((scale.bar_height(row_height - _LINE) for scale in drawn), default=0.0)
    size = (left_of_bars + len(drawn) * COLOUR_BAR, max(rows * row_height, bar_height))
    explained = [
        *notes,
        "frames, tinted by the attention to them" if steps is not None else "",
        "below each, the attention to its places, with the contours of the frame" if places is not None else "",
        f"{len(shown)} of {len(frames)} frames" if len(shown) < len(frames) else "",
    ]
    with open_canvas(path, title, explained, [], *size) as canvas:
        for n, at in enumerate(shown):
            left, top = n % across * (wide + _GAP), n // across * row_height
            axes = canvas.add_axes(left, top, wide, high)
            _draw_frame(axes, pictures[at], None if steps is None else float(steps[at]), scales["steps"])
            if places is not None and scales["places"] is not None:
                below = canvas.add_axes(left, top + high + _GAP, wide, high)
                draw_overlay(below, places[at], _tensor(pictures[at]), scales["places"], "nearest")
            share = "" if steps is None else f": {100 * float(steps[at]):.0f} %"
            canvas.write(f"{at}{share}", left, top + pitch * (high + _GAP), MIN_FONT, va="top")
        for n, scale in enumerate(drawn):
            canvas.add_colour_bar(left_of_bars + n * COLOUR_BAR, 0.0, bar_height, scale)
    return path


def _tensor(picture: NDArray[np.uint8]) -> Tensor:  # "h w 3" -> "h w 3" from 0 to 1
    import torch

    return torch.from_numpy(np.ascontiguousarray(picture)).float() / 255


def _draw_frame(axes: Any, picture: NDArray[np.uint8], weight: float | None, scale: Scale | None) -> None:
    from matplotlib import colormaps

    pixels = picture / 255.0
    axes.set(xticks=[], yticks=[])
    if weight is not None and scale is not None:
        colour = np.array(colormaps[scale.colormap](scale.norm()(weight))[:3])
        pixels = (1 - _TINT) * pixels + _TINT * colour
        axes.spines[:].set(color=colour.tolist(), linewidth=_BORDER)
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
