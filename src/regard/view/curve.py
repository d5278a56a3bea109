"""Numbers against numbers in a file: lines for what changes as a run goes on, named points for what is compared."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from regard.view.figure import sheet

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
) -> Path:
    """One line a name through its points (x, y), into a .png, .svg or .pdf; the same input gives the same bytes."""
    path = Path(path)
    if not any(lines.values()):
        raise ValueError(f"lines must hold at least one point, got {dict(lines)!r}; pass {{'loss': [(0, 1.0)]}}")
    for name, points in lines.items():
        _finite(name, points)
    with sheet(path, [*lines, x_label, y_label, title], _SIZE) as (drawn, spelt):
        place = drawn.subplots()
        handles = [
            place.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=_COLOURS[n % len(_COLOURS)],
                linestyle=_STROKES[n // len(_COLOURS) % len(_STROKES)],
                marker="." if len(points) <= _MARKED else None,
                linewidth=1.4,
            )[0]
            for n, points in enumerate(lines.values())
        ]
        place.set(xlabel=spelt(x_label), ylabel=spelt(y_label), title=spelt(title))
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1 or any(lines):
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
    with sheet(path, [*points, x_label, y_label, title], _SIZE) as (drawn, spelt):
        place = drawn.subplots()
        for n, (name, (x, y)) in enumerate(points.items()):
            place.plot([x], [y], ".", markersize=9, color=_COLOURS[n % len(_COLOURS)])
            place.annotate(spelt(name), (x, y), xytext=(4, 4), textcoords="offset points")
        place.set(xlabel=spelt(x_label), ylabel=spelt(y_label), title=spelt(title))
        place.margins(0.15)
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
    return path
