"""A picture and maps over it, side by side, each with its name."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, Scale, open_canvas
from regard.viz.recording.figures.overlays import draw_overlay, image_inches
from regard.viz.text.labels import shorten

# inches: the longer side of the picture, the gap between panels, the line of text over a panel
_SIDE, _GAP, _LINE = 1.25, 0.12, 0.2
_COLUMNS = 24


def draw_picture_panels(
    image: Tensor,
    maps: Sequence[tuple[str, Tensor]],
    path: Path,
    title: str,
    note: str,
    scale: Scale,
    most_across: int = 4,
) -> Path:  # "h w 3" from 0 to 1, "rows columns" each
    """The picture, and every map in the colours of the scale with the picture's contours."""
    panels: list[tuple[str, Tensor | None]] = [("picture", None), *maps]
    wide, high = image_inches((1, 1), image, _SIDE)
    across = min(len(panels), most_across)
    rows = -(-len(panels) // across)
    size = (
        across * (max(wide, _SIDE) + _GAP) + COLOUR_BAR,
        max(rows * (high + _LINE + _GAP), _LINE + scale.bar_height(high)),
    )
    with open_canvas(path, title, [note], [name for name, _ in maps], *size) as canvas:
        for n, (name, cells) in enumerate(panels):
            left, top = n % across * (max(wide, _SIDE) + _GAP), n // across * (high + _LINE + _GAP)
            canvas.write(shorten(canvas.spell(name), _COLUMNS), left, top, MIN_FONT, va="top")
            axes = canvas.add_axes(left, top + _LINE, wide, high)
            if cells is not None:
                draw_overlay(axes, cells, image, scale, "nearest")
            else:
                axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
                axes.set(xticks=[], yticks=[])
        canvas.add_colour_bar(across * (max(wide, _SIDE) + _GAP), _LINE, scale.bar_height(high), scale)
    return path
