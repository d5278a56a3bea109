"""Numbers against numbers in a file: lines for what changes as a run goes on, named points for what is compared."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.viz.plots.figure_file import figure_file

# Okabe and Ito (2008): told apart by colour-blind eyes too; strokes change when they are used up.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STROKES = ("-", "--", ":", "-.")
_SIZE = (5.6, 3.4)
# Points of a line are marked up to this many.
_MARKED = 30


def _finite(name: str, points: Iterable[tuple[float, float]]) -> None:
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
    """One line a name through its points (x, y), into a .png, .svg or .pdf; the same input gives the same bytes.

    `floor` is where the y axis begins, if no point lies below it.
    """
    path = Path(path)
    if not any(lines.values()):
        raise ValueError(f"lines must hold at least one point, got {dict(lines)!r}; pass {{'loss': [(0, 1.0)]}}")
    for name, points in lines.items():
        _finite(name, points)
    with figure_file(path, [*lines, x_label, y_label, title], _SIZE) as (drawn, spelt):
        place = drawn.subplots()
        handles = [
            place.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=_COLOURS[n % len(_COLOURS)],
                # a single point is no line, in the legend neither
                linestyle=_STROKES[n // len(_COLOURS) % len(_STROKES)] if len(points) > 1 else "",
                marker=None if len(points) > _MARKED else "." if len(points) > 1 else "o",
                linewidth=1.4,
            )[0]
            for n, points in enumerate(lines.values())
        ]
        place.set(xlabel=spelt(x_label), ylabel=spelt(y_label), title=spelt(title))
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
        values = [y for points in lines.values() for _, y in points]
        if floor is not None and min(values) >= floor:
            place.set_ylim(floor, floor + 1 if max(values) == floor else None)
        if any(lines):
            place.legend(handles, [spelt(name) for name in lines], frameon=False)
    return path


def scatter(
    points: Mapping[str, tuple[float, float]],
    path: str | Path,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
) -> Path:
    """One named dot (x, y) each, into a .png, .svg or .pdf; the same input gives the same bytes."""
    path = Path(path)
    if not points:
        raise ValueError("points must hold at least one, got none; pass {'additive': (12.0, 31.5)}")
    for name, point in points.items():
        _finite(name, [point])
    with figure_file(path, [*points, x_label, y_label, title], _SIZE) as (drawn, spelt):
        place = drawn.subplots()
        place.set(xlabel=spelt(x_label), ylabel=spelt(y_label), title=spelt(title))
        names = []
        for n, (name, (x, y)) in enumerate(points.items()):
            place.plot([x], [y], ".", markersize=9, color=_COLOURS[n % len(_COLOURS)])
            names.append(place.annotate(spelt(name), (x, y), xytext=(5, 5), textcoords="offset points"))
        place.margins(0.15)
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
        drawn.draw_without_rendering()  # now it is known where everything stands
        _part(names, place)
    return path


def _part(names: Sequence[Any], place: Any) -> None:
    """Puts each name beside its dot where it covers neither a dot nor a name before it, as near as can be."""
    from matplotlib.transforms import Bbox

    dots = [place.transData.transform(name.xy) for name in names]
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in dots]
    for name in names:
        for far, (across, side), up in itertools.product((5, 12, 20, 30, 42), ((1, "left"), (-1, "right")), (1, -1)):
            name.set(position=(5 * across, far * up), ha=side, va="bottom" if up > 0 else "top")
            box = name.get_window_extent()
            inside = place.bbox.x0 <= box.x0 and box.x1 <= place.bbox.x1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(name.get_window_extent())
