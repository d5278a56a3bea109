"""The path of glimpses: windows over a picture, and a number at the middle of each."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.recording.recording import Recording
from regard.viz.plots.canvas import board
from regard.viz.plots.heatmap import INK
from regard.viz.recording import selection
from regard.viz.recording.figures.overlays import RIM, Picture, gridded, inches, known, picture, steps

# inches of the picture's longer side
_LARGE = 3.92
# points: of a number, and of the box around it
_FONT, _HIGH, _DIGIT, _PAD = 7, 11.0, 4.6, 5.0
# and of the dot at the middle of a window
_DOT = 4.0

Box = tuple[float, float, float, float]  # left, top, right and bottom


def glimpses(recording: Recording, path: str | Path, *, sample: int = 0, layer: int | str | None = None,
             image: Picture | None = None) -> Path:  # fmt: skip
    """The windows that were looked through, numbered, and the path from one to the next."""
    under = None if image is None else picture(image)
    seen, cells = steps(recording, gridded(recording, layer, ("glimpse",), "glimpses"), sample)
    high, wide = cells.shape[1:]
    size = inches((high, wide), under, _LARGE)
    unsure = "" if all(one.one.verified for one in seen) else " (unverified)"
    notes = [selection.said(recording, sample), f"{seen[0].named}, over {high} × {wide} places, {known(seen)}"]
    empty = [str(n + 1) for n, one in enumerate(cells) if not bool(one.any())]
    notes += [f"nothing was seen at {', '.join(empty)}"] if empty else []
    with board(path, f"{len(cells)} glimpses{unsure}", notes, [], size[0], size[1]) as b:
        axes = b.place(0.0, 0.0, *size)
        where = (-0.5, wide - 0.5, high - 0.5, -0.5)
        ground = torch.full((1, 1, 3), 0.6) if under is None else under
        axes.imshow(ground.numpy(), extent=where, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[], xlim=where[:2], ylim=where[2:])
        _path(axes, cells, size)
    return Path(path)


def _path(axes: Any, cells: Tensor, size: tuple[float, float]) -> None:
    """A frame around what a glimpse saw best, a thin one around all that it saw, and a line through their middles."""
    from matplotlib.patches import Rectangle

    high, wide = cells.shape[1:]
    seen = [(number + 1, one) for number, one in enumerate(cells) if bool(one.any())]
    middles = []
    for _, one in seen:
        outer, inner = _box(one > 0), _box(one >= 0.99 * one.max())
        for (left, top, right, bottom), width in {outer: 0.6, inner: 1.1}.items():
            for colour, thick in ((RIM, width + 1.3), (INK, width)):  # a light rim, so that it is seen on any ground
                frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour)
                axes.add_patch(frame)
                frame.set_linewidth(thick)
        middles.append(((inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2))
    for width, colour in ((2.4, RIM), (1.1, INK)):
        axes.plot([x for x, _ in middles], [y for _, y in middles], "-", color=colour, linewidth=width)
    axes.plot([x for x, _ in middles], [y for _, y in middles], "o", color=INK, markeredgecolor=RIM, markersize=_DOT)
    # points from the left and from the top
    points = [((x + 0.5) / wide * size[0] * 72, (y + 0.5) / high * size[1] * 72) for x, y in middles]
    groups = together(points)
    names = [", ".join(str(seen[n][0]) for n in group) for group in groups]
    shifts = apart([points[group[0]] for group in groups], names, size)
    for name, group, shift in zip(names, groups, shifts, strict=True):
        axes.annotate(
            name, middles[group[0]], xytext=(shift[0], -shift[1]), textcoords="offset points", ha="center", va="center",
            fontsize=_FONT, color="white", bbox={"facecolor": INK, "edgecolor": RIM, "linewidth": 0.4, "pad": 1.4},
            # a number that had to move is tied to its place
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.7} if any(shift) else None,
        )  # fmt: skip


def together(points: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Which of the points fall together: those whose dots would cover each other's middle."""
    groups: list[list[int]] = []
    for n, point in enumerate(points):
        near = (group for group in groups if math.dist(points[group[0]], point) < _DOT)
        group = next(near, None)
        if group is None:
            groups.append([n])
        else:
            group.append(n)
    return groups


def apart(
    points: Sequence[tuple[float, float]], names: Sequence[str], size: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """How far each number is moved, in points, so that none covers another: not at all, or as little as can be."""
    near = sorted(product(range(-12, 13), repeat=2), key=lambda at: (at[0] ** 2 + at[1] ** 2, -at[0], at[1]))
    taken: list[Box] = []
    for (x, y), name in zip(points, names, strict=True):
        wide = _DIGIT * len(name) + _PAD
        shifts = [(across * wide, down * _HIGH) for across, down in near]
        free = [at for at in shifts if not any(_overlap(_around(x, y, wide, at), other) for other in taken)]
        # one that is moved stays on the picture, if it can
        inside = [at for at in free if 0 <= x + at[0] <= 72 * size[0] and 0 <= y + at[1] <= 72 * size[1]]
        best = next(iter([*inside, *free, *shifts]))
        taken.append(_around(x, y, wide, best))
        yield best


def _around(x: float, y: float, wide: float, shift: tuple[float, float]) -> Box:
    x, y = x + shift[0], y + shift[1]
    return x - wide / 2, y - _HIGH / 2, x + wide / 2, y + _HIGH / 2


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _box(seen: Tensor) -> Box:
    """Left, top, right and bottom of the cells that are true."""
    rows, columns = seen.any(1).nonzero().flatten().tolist(), seen.any(0).nonzero().flatten().tolist()
    return columns[0] - 0.5, rows[0] - 0.5, columns[-1] + 0.5, rows[-1] + 0.5
