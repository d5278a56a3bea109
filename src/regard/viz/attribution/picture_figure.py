"""A picture, and its patches in the colours of their scores, once per method."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, Scale, open_canvas
from regard.viz.recording.figures.overlays import draw_overlay, image_inches
from regard.viz.text.labels import shorten

# inches: the longer side of the picture, the gap between panels, the line of text over a panel; panels per row
_SIDE, _GAP, _LINE, _ACROSS = 1.5, 0.12, 0.2, 4
_COLUMNS = 24


def draw_picture_attributions(
    image: Tensor, scores: Mapping[str, Tensor], path: Path, title: str
) -> Path:  # "h w 3" from 0 to 1, "rows columns" each
    """Panels of the picture and of every method, each scaled to its greatest score, with the picture's contours."""
    shares = [(name, cells / cells.abs().max().clamp_min(1e-30)) for name, cells in scores.items()]
    panels: list[tuple[str, Tensor | None]] = [("picture", None), *shares]
    wide, high = image_inches((1, 1), image, _SIDE)
    across = min(len(panels), _ACROSS)
    rows = -(-len(panels) // across)
    size = (across * (max(wide, _SIDE) + _GAP) + COLOUR_BAR, rows * (high + _LINE + _GAP))
    scale = Scale(1.0, -1.0, name="share of the greatest score")
    note = "orange adds to the logit, violet takes away; lines: the contours of the picture"
    with open_canvas(path, title, [note], list(scores), *size) as canvas:
        for n, (name, cells) in enumerate(panels):
            left, top = n % across * (max(wide, _SIDE) + _GAP), n // across * (high + _LINE + _GAP)
            canvas.write(shorten(name, _COLUMNS), left, top, MIN_FONT + 1, va="top")
            axes = canvas.add_axes(left, top + _LINE, wide, high)
            if cells is not None:
                draw_overlay(axes, cells, image, scale, "nearest")
            else:
                axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
                axes.set(xticks=[], yticks=[])
        canvas.add_colour_bar(across * (max(wide, _SIDE) + _GAP), _LINE, max(high, 0.9), scale)
    return path
