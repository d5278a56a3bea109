"""The path of glimpses: windows over an image, with the number of its glimpse at the centre of each."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.recording.recording import Recording
from regard.viz.plots.canvas import open_canvas
from regard.viz.plots.panels import FRAME_COLOUR
from regard.viz.plots.picture_panels import image_inches
from regard.viz.recording import selection
from regard.viz.recording.figures.overlays import ImageSource, grid_map_numbers, load_image, step_grids

# inches of the longer side of the image
_SIDE = 3.6
# points: the font of a number, the height of its box, the width of a digit, and the padding
_FONT, _BOX_HEIGHT, _DIGIT, _PADDING = 7, 11.0, 4.6, 5.0
# points of the dot at the centre of a window
_DOT = 4.0
# the colour of a rim that separates a mark from any background
_RIM = "#FFFFFF"

Box = tuple[float, float, float, float]  # left, top, right, bottom


def glimpses_figure(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
                    image: ImageSource | None = None) -> Path:  # fmt: skip
    """The windows of the glimpses, numbered, and the path from one to the next."""
    background = None if image is None else load_image(image)
    numbers = grid_map_numbers(recording, layer, ("glimpse",), "glimpses")
    maps, grids = step_grids(recording, numbers, sample)
    height, width = grids.shape[1:]
    size = image_inches((height, width), background, _SIDE)
    recorded_maps = [selected.recorded_map for selected in maps]
    verification = selection.verification_label(*recorded_maps)
    notes = [selection.prediction_note(recording, sample)]
    notes.append(f"{maps[0].title}, over {height} × {width} patches, {verification}")
    empty = [str(n + 1) for n, grid in enumerate(grids) if not bool(grid.any())]
    notes += [f"no weight at {', '.join(empty)}"] if empty else []
    title = f"{len(grids)} glimpses{selection.unverified_suffix(*recorded_maps)}"
    with open_canvas(path, title, notes, [], size[0], size[1]) as canvas:
        axes = canvas.add_axes(0.0, 0.0, *size)
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        pixels = torch.full((1, 1, 3), 0.6) if background is None else background
        axes.imshow(pixels.numpy(), extent=extent, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:])
        _draw_path(axes, grids, size)
    return Path(path)


def _draw_path(axes: Any, grids: Tensor, size: tuple[float, float]) -> None:
    """A frame around the sharp part of each glimpse, a thin one around all of it, and a line through the centres."""
    from matplotlib.patches import Rectangle

    height, width = grids.shape[1:]
    numbered = [(number + 1, grid) for number, grid in enumerate(grids) if bool(grid.any())]
    centres = []
    for _, grid in numbered:
        outer, inner = _bounding_box(grid > 0), _bounding_box(grid >= 0.99 * grid.max())
        for (left, top, right, bottom), line_width in {outer: 0.6, inner: 1.1}.items():
            # the light rim makes the frame visible on any background
            for colour, thickness in ((_RIM, line_width + 1.3), (FRAME_COLOUR, line_width)):
                frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour)
                axes.add_patch(frame)
                frame.set_linewidth(thickness)
        centres.append(((inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2))
    xs, ys = [x for x, _ in centres], [y for _, y in centres]
    for line_width, colour in ((2.4, _RIM), (1.1, FRAME_COLOUR)):
        axes.plot(xs, ys, "-", color=colour, linewidth=line_width)
    axes.plot(xs, ys, "o", color=FRAME_COLOUR, markeredgecolor=_RIM, markersize=_DOT)
    # points from the left and from the top
    points = [((x + 0.5) / width * size[0] * 72, (y + 0.5) / height * size[1] * 72) for x, y in centres]
    groups = group_points(points)
    names = [", ".join(str(numbered[n][0]) for n in group) for group in groups]
    shifts = separate_labels([points[group[0]] for group in groups], names, size)
    box = {"facecolor": FRAME_COLOUR, "edgecolor": _RIM, "linewidth": 0.4, "pad": 1.4}
    for name, group, shift in zip(names, groups, shifts, strict=True):
        axes.annotate(
            name, centres[group[0]], xytext=(shift[0], -shift[1]), textcoords="offset points", ha="center", va="center",
            fontsize=_FONT, color="white", bbox=box,
            # a line connects a number that was moved to its point
            arrowprops={"arrowstyle": "-", "color": FRAME_COLOUR, "linewidth": 0.7} if any(shift) else None,
        )  # fmt: skip


def group_points(points: Sequence[tuple[float, float]]) -> list[list[int]]:
    """The indices of points, grouped where the dot of one would cover the centre of another."""
    groups: list[list[int]] = []
    for n, point in enumerate(points):
        near = next((group for group in groups if math.dist(points[group[0]], point) < _DOT), None)
        if near is None:
            groups.append([n])
        else:
            near.append(n)
    return groups


def separate_labels(
    points: Sequence[tuple[float, float]], names: Sequence[str], size: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """The shift of each label in points, as small as possible, so that no label covers another."""
    cells = sorted(product(range(-12, 13), repeat=2), key=lambda at: (at[0] ** 2 + at[1] ** 2, -at[0], at[1]))
    occupied: list[Box] = []
    for (x, y), name in zip(points, names, strict=True):
        width = _DIGIT * len(name) + _PADDING
        shifts = [(across * width, down * _BOX_HEIGHT) for across, down in cells]
        free = [at for at in shifts if not any(_overlap(_label_box(x, y, width, at), other) for other in occupied)]
        # a label that is moved stays inside the image if it can
        inside = [at for at in free if 0 <= x + at[0] <= 72 * size[0] and 0 <= y + at[1] <= 72 * size[1]]
        shift = next(iter([*inside, *free, *shifts]))
        occupied.append(_label_box(x, y, width, shift))
        yield shift


def _label_box(x: float, y: float, width: float, shift: tuple[float, float]) -> Box:
    x, y = x + shift[0], y + shift[1]
    return x - width / 2, y - _BOX_HEIGHT / 2, x + width / 2, y + _BOX_HEIGHT / 2


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _bounding_box(cells: Tensor) -> Box:
    """Left, top, right and bottom of the cells that are true."""
    rows, columns = cells.any(1).nonzero().flatten().tolist(), cells.any(0).nonzero().flatten().tolist()
    return columns[0] - 0.5, rows[0] - 0.5, columns[-1] + 0.5, rows[-1] + 0.5
