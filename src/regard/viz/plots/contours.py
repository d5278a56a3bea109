"""The contours of an image as lines over a map, so that the colours of the map stay those of its colour bar."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

# pixels of the longer side that an image is reduced to, and the least range of a channel that has contours
_SIDE, _MIN_RANGE = 64, 0.1
# a light rim under a dark line: one of them is visible on any colour
_STROKES = (("#FFFFFF", 1.1), ("#202020", 0.45))


def contour_lines(image: Tensor) -> list[tuple[float, float, float, float]]:  # "h w 3"
    """Lines (x, y, x, y) from 0 to 1 around pixels whose red, green or blue lies above the middle of its range.

    page.js draws the same lines.
    """
    height, width = image.shape[:2]
    factor = max(height, width) / _SIDE
    rows, columns = (height, width) if factor <= 1 else (max(round(height / factor), 1), max(round(width / factor), 1))
    small = adaptive_avg_pool2d(image.movedim(-1, 0), (rows, columns))
    low, high = small.amin((1, 2), keepdim=True), small.amax((1, 2), keepdim=True)
    above = (small > (low + high) / 2) & (high - low >= _MIN_RANGE)
    between_columns = (above[:, :, 1:] != above[:, :, :-1]).any(0)
    between_rows = (above[:, 1:] != above[:, :-1]).any(0)
    vertical = [(x / columns, y0 / rows, x / columns, y1 / rows) for x, y0, y1 in _runs(between_columns.T)]
    return vertical + [(x0 / columns, y / rows, x1 / columns, y / rows) for y, x0, x1 in _runs(between_rows)]


def _runs(lines: Tensor) -> Iterator[tuple[int, int, int]]:
    """The unbroken stretches of each line: its number from 1, their start and their end."""
    for number, line in enumerate(lines.tolist(), 1):
        start = 0
        for is_drawn, stretch in groupby(line):
            end = start + len(list(stretch))
            if is_drawn:
                yield number, start, end
            start = end


def draw_contours(axes: Any, image: Tensor, left: float, right: float, bottom: float, top: float) -> None:
    """Draws the contours into axes in which the image has this extent."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    lines = contour_lines(image)
    if not lines:
        return
    points = [
        (left + (right - left) * x, top + (bottom - top) * y)
        for x0, y0, x1, y1 in lines
        for x, y in ((x0, y0), (x1, y1))
    ]
    path = Path(points, [Path.MOVETO, Path.LINETO] * len(lines))
    for colour, width in _STROKES:
        axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=width, capstyle="round"))
