"""A picture and maps over it, side by side, each with its name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.viz.plots.canvas import COLOUR_BAR, MIN_FONT, Scale, open_canvas
from regard.viz.plots.contours import draw_contours
from regard.viz.text.labels import shorten

# inches: the longer side of the picture, the gap between panels, the line of text over a panel
_SIDE, _GAP, _LINE = 1.25, 0.12, 0.2
_COLUMNS = 24


def image_inches(grid: tuple[int, int], image: Tensor | None, side: float) -> tuple[float, float]:
    """The width and height in inches of an image, or of a grid without one, whose longer side is `side`."""
    height, width = grid if image is None else image.shape[:2]
    return side * width / max(height, width), side * height / max(height, width)


def draw_overlay(axes: Any, cells: Tensor, image: Tensor | None, scale: Scale, interpolation: str) -> None:
    """The cells in the colours of the colour bar, with the contours of the image over them."""
    height, width = cells.shape
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    colours = {"cmap": scale.colormap, "norm": scale.norm()}
    axes.imshow(cells.numpy(), **colours, extent=extent, aspect="auto", interpolation=interpolation)
    if image is not None:
        draw_contours(axes, image, *extent)
    axes.set(xticks=[], yticks=[])


def draw_image(axes: Any, image: Tensor) -> None:  # "h w 3" from 0 to 1
    """The image without ticks, each pixel a rectangle."""
    axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])


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
                draw_image(axes, image)
        canvas.add_colour_bar(across * (max(wide, _SIDE) + _GAP), _LINE, scale.bar_height(high), scale)
    return path
