"""What a model draws as a figure in a file: a row of pictures a class, with its name and what was recognised of it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.viz.plots.canvas import board
from regard.viz.plots.typesetting import text_widths

# inches of a row, at least and at most, for so many pixels an inch; points of the names
_LEAST, _MOST, _PIXELS, _FONT = 0.55, 1.3, 100, 7.0


def samples(
    sheet: NDArray[np.uint8], names: Sequence[str], beside: Sequence[str], path: str | Path, title: str
) -> Path:  # "h w c"
    """Draws a sheet of pictures, in rows of one height, into a .png, .svg or .pdf.

    At the left of each row stands its name, at the right what is known of it.
    """
    high, wide = sheet.shape[:2]
    pitch = high / len(names)
    inches = min(max(pitch / _PIXELS, _LEAST), _MOST) / pitch  # of a pixel
    left, right = (max(text_widths(list(some), _FONT)) + 0.12 for some in (names, beside))
    with board(path, title, [], [*names, *beside], left + wide * inches + right, high * inches) as b:
        axes = b.place(left, 0.0, wide * inches, high * inches)
        shown = sheet[..., 0] if sheet.shape[-1] == 1 else sheet
        axes.imshow(shown, cmap="gray", vmin=0, vmax=255, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        for n, (name, known) in enumerate(zip(names, beside, strict=True)):
            middle = (n + 0.5) * pitch * inches
            b.write(name, left - 0.08, middle, _FONT, ha="right", va="center")
            b.write(known, left + wide * inches + 0.08, middle, _FONT, va="center", color="#555555")
    return Path(path)
