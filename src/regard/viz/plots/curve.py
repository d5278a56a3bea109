"""Line plots of quantities over training steps and scatter plots of named points, written to a file."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.viz.plots.figure_file import figure_file

# Okabe and Ito (2008), for colour-blind readers; line styles change when the colours are used up.
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINE_STYLES = ("-", "--", ":", "-.")
_SIZE = (5.6, 3.4)
# Points of a line are marked up to this many.
_MAX_MARKERS = 30


def _check_finite(name: str, points: Iterable[tuple[float, float]]) -> None:
    for number, (x, y) in enumerate(points):
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError(f"point {number} of {name!r} must be finite, got ({x}, {y}); leave it out")


def curve(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    path: str | Path,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    *,
    floor: float | None = None,
) -> Path:
    """One line per name through its points (x, y), into a .png, .svg or .pdf; the same input gives the same bytes.

    `floor` is the start of the y axis, if no point lies below it.
    """
    path = Path(path)
    if not any(lines.values()):
        raise ValueError(f"lines must hold at least one point, got {dict(lines)!r}; pass {{'loss': [(0, 1.0)]}}")
    for name, points in lines.items():
        _check_finite(name, points)
    with figure_file(path, [*lines, x_label, y_label, title], _SIZE) as (figure, spell):
        axes = figure.subplots()
        handles = [
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=LINE_COLOURS[n % len(LINE_COLOURS)],
                # a single point gets no line, also in the legend
                linestyle=_LINE_STYLES[n // len(LINE_COLOURS) % len(_LINE_STYLES)] if len(points) > 1 else "",
                marker=None if len(points) > _MAX_MARKERS else "." if len(points) > 1 else "o",
                linewidth=1.4,
            )[0]
            for n, points in enumerate(lines.values())
        ]
        axes.set(xlabel=spell(x_label), ylabel=spell(y_label), title=spell(title))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        values = [y for points in lines.values() for _, y in points]
        if floor is not None and min(values) >= floor:
            axes.set_ylim(floor, floor + 1 if max(values) == floor else None)
        if any(lines):
            axes.legend(handles, [spell(name) for name in lines], frameon=False)
    return path


def scatter(
    points: Mapping[str, tuple[float, float]],
    path: str | Path,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
) -> Path:
    """One named dot (x, y) per name, into a .png, .svg or .pdf; the same input gives the same bytes."""
    path = Path(path)
    if not points:
        raise ValueError("points must hold at least one, got none; pass {'additive': (12.0, 31.5)}")
    for name, point in points.items():
        _check_finite(name, [point])
    with figure_file(path, [*points, x_label, y_label, title], _SIZE) as (figure, spell):
        axes = figure.subplots()
        axes.set(xlabel=spell(x_label), ylabel=spell(y_label), title=spell(title))
        names = []
        for n, (name, (x, y)) in enumerate(points.items()):
            axes.plot([x], [y], ".", markersize=9, color=LINE_COLOURS[n % len(LINE_COLOURS)])
            names.append(axes.annotate(spell(name), (x, y), xytext=(5, 5), textcoords="offset points"))
        axes.margins(0.15)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.draw_without_rendering()  # places every label, so that its extent is known
        _separate_labels(names, axes)
    return path


def _separate_labels(names: Sequence[Any], axes: Any) -> None:
    """Moves each name as near to its dot as possible without covering a dot or an earlier name."""
    from matplotlib.transforms import Bbox

    dots = [axes.transData.transform(name.xy) for name in names]
    occupied = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in dots]
    sides = ((1, "left"), (-1, "right"))
    for name in names:
        for distance, (across, alignment), up in itertools.product((5, 12, 20, 30, 42), sides, (1, -1)):
            name.set(position=(5 * across, distance * up), ha=alignment, va="bottom" if up > 0 else "top")
            box = name.get_window_extent()
            is_inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
            if is_inside and not any(box.overlaps(other) for other in occupied):
                break
        occupied.append(name.get_window_extent())
