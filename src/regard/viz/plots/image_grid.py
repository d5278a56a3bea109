"""Many small images in one PNG file. Does not import torch."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.common import atomic_files

# pixels: the least side of an enlarged image, and the gap between two; the colour of the gap
_SIDE, _GAP, _WHITE = 32, 2, 255


def image_grid(rows: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> NDArray[np.uint8]:  # "n h w c" each -> "y x c"
    """Rows of images as one image, each pixel enlarged to a square."""
    if not len(rows) or not all(len(row) for row in rows):
        raise ValueError(f"rows must hold images, got {[len(row) for row in rows]} of them; give one at least")
    _, height, width, channels = rows[0].shape
    factor = max(1, -(-_SIDE // max(height, width)))
    height, width, columns = height * factor, width * factor, max(map(len, rows))
    grid = np.full((_GAP + len(rows) * (height + _GAP), _GAP + columns * (width + _GAP), channels), _WHITE, np.uint8)
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            top, left = _GAP + y * (height + _GAP), _GAP + x * (width + _GAP)
            grid[top : top + height, left : left + width] = image.repeat(factor, 0).repeat(factor, 1)
    return grid


def png_bytes(pixels: NDArray[np.uint8]) -> bytes:  # "h w c"
    """A PNG of 1 or 3 channels; the same pixels give the same bytes."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need pillow; install it with: pip install 'regard[vision]'") from error
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_png(path: Path, pixels: NDArray[np.uint8]) -> None:  # "h w c"
    """Writes a PNG file atomically."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"images are written as .png, got {path.name}; name it {path.with_suffix('.png').name}")
    atomic_files.write_atomically(path, [png_bytes(pixels)])
