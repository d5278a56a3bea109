"""A picture as lines over a map, so that the colours of the map stay those of its bar, whatever lies under them."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

# a picture is made so small before lines are drawn; a colour that hardly changes has none
_SIDE, _LEAST = 64, 0.1
# a light rim under a dark line: one of them is seen on any colour
_STROKES = (("#FFFFFF", 1.1), ("#202020", 0.45))


def outline(picture: Tensor) -> list[tuple[float, float, float, float]]:  # "h w 3"
    """(x, y) to (x, y) of lines, from 0 to 1: around what has more red, green or blue than the middle of what there is.

    overlay.js and recording_image.js draw the same ones.
    """
    high, wide = picture.shape[:2]
    times = max(high, wide) / _SIDE
    size = (high, wide) if times <= 1 else (max(round(high / times), 1), max(round(wide / times), 1))
    small = adaptive_avg_pool2d(picture.movedim(-1, 0), size)
    low, high_ = small.amin((1, 2), keepdim=True), small.amax((1, 2), keepdim=True)
    more = (small > (low + high_) / 2) & (high_ - low >= _LEAST)
    across = (more[:, :, 1:] != more[:, :, :-1]).any(0)  # between two columns
    down = (more[:, 1:] != more[:, :-1]).any(0)  # between two rows
    upright = [(x / size[1], y0 / size[0], x / size[1], y1 / size[0]) for x, y0, y1 in _runs(across.T)]
    return upright + [(x0 / size[1], y / size[0], x1 / size[1], y / size[0]) for y, x0, x1 in _runs(down)]


def _runs(lines: Tensor) -> Iterator[tuple[int, int, int]]:
    """Where each line is drawn without a gap: its number from 1, where from and where to."""
    for number, line in enumerate(lines.tolist(), 1):
        at = 0
        for drawn, some in groupby(line):
            end = at + len(list(some))
            if drawn:
                yield number, at, end
            at = end


def trace(axes: Any, picture: Tensor, left: float, right: float, bottom: float, top: float) -> None:
    """Draws the lines into axes whose picture lies between these."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    lines = outline(picture)
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
