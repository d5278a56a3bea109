"""Many small pictures in one file. No torch here."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.common import atomic_files

# pixels of a small picture's side at least, and of what parts two of them
_SIDE, _GAP, _PAPER = 32, 2, 255


def grid(rows: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> NDArray[np.uint8]:  # each "n h w c" -> "y x c"
    """Rows of pictures, large enough to be seen: every pixel a square of as many."""
    if not len(rows) or not all(len(row) for row in rows):
        raise ValueError(f"rows must hold pictures, got {[len(row) for row in rows]} of them; give one at least")
    _, height, width, channels = rows[0].shape
    times = max(1, -(-_SIDE // max(height, width)))
    high, wide, most = height * times, width * times, max(map(len, rows))
    sheet = np.full((_GAP + len(rows) * (high + _GAP), _GAP + most * (wide + _GAP), channels), _PAPER, np.uint8)
    for y, row in enumerate(rows):
        for x, one in enumerate(row):
            top, left = _GAP + y * (high + _GAP), _GAP + x * (wide + _GAP)
            sheet[top : top + high, left : left + wide] = one.repeat(times, 0).repeat(times, 1)
    return sheet


def write_picture(path: Path, pixels: NDArray[np.uint8]) -> None:  # "h w c"
    """A PNG file, whole or not at all; the same pixels give the same bytes."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need pillow; install it with: pip install 'regard[vision]'") from error
    if path.suffix.lower() != ".png":
        raise ValueError(f"pictures are written as .png, got {path.name}; name it {path.with_suffix('.png').name}")
    held = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(held, "PNG")
    atomic_files.write_atomically(path, [held.getbuffer()])
