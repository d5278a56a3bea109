"""Samples of a generative model as a figure: a row of images per class, its name on the left, a note on the right."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.viz.plots.canvas import open_canvas
from regard.viz.plots.typesetting import text_widths

# inches of a row, at least and at most; pixels per inch; points of the names
_MIN_ROW, _MAX_ROW, _PIXELS_PER_INCH, _FONT = 0.55, 1.3, 100, 7.0
# inches of a sheet, at most
_MAX_WIDTH = 6.6


def draw_samples(
    sheet: NDArray[np.uint8], names: Sequence[str], notes: Sequence[str], path: str | Path, title: str
) -> Path:  # "h w c"
    """Draws a sheet of images, in rows of one height, into a .png, .svg or .pdf, with a name and a note per row."""
    height, width = sheet.shape[:2]
    row_height = height / len(names)
    pixel = min(max(row_height / _PIXELS_PER_INCH, _MIN_ROW), _MAX_ROW) / row_height  # in inches
    # names beside a wider sheet could not be read on a page
    pixel = min(pixel, _MAX_WIDTH / width)
    left, right = (max(text_widths(list(texts), _FONT)) + 0.12 for texts in (names, notes))
    with open_canvas(path, title, [], [*names, *notes], left + width * pixel + right, height * pixel) as canvas:
        axes = canvas.add_axes(left, 0.0, width * pixel, height * pixel)
        image = sheet[..., 0] if sheet.shape[-1] == 1 else sheet
        axes.imshow(image, cmap="gray", vmin=0, vmax=255, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        for n, (name, note) in enumerate(zip(names, notes, strict=True)):
            middle = (n + 0.5) * row_height * pixel
            canvas.write(name, left - 0.08, middle, _FONT, ha="right", va="center")
            canvas.write(note, left + width * pixel + 0.08, middle, _FONT, va="center", color="#555555")
    return Path(path)
