"""A ranking as a figure: one row per name, the best first, with a bar as long as its score."""

import math
from collections.abc import Sequence
from pathlib import Path

from regard.viz.plots.canvas import open_canvas
from regard.viz.plots.typesetting import text_widths

# inches of a row and of the longest bar, points of the names, characters of a name
_ROW, _BAR, _FONT, _MOST = 0.24, 2.4, 7.0, 80
_COLOUR = "#0072B2"


def draw_ranking(rows: Sequence[tuple[str, float]], path: str | Path, title: str, score: str) -> Path:
    """Draws names with scores into a .png, .svg or .pdf; a bar is as long as its score, from 0 to 1.

    A score below zero has no bar. The same input gives the same bytes.
    """
    if not rows:
        raise ValueError("rows must hold at least one name with its score, got none; pass [('a line', 0.9)]")
    for name, value in rows:
        if not math.isfinite(value):
            raise ValueError(f"the score of {name!r} must be finite, got {value}; leave it out")
    names = [name if len(name) <= _MOST else f"{name[: _MOST - 1]}…" for name, _ in rows]
    numbers = [f"{value:.3f}" for _, value in rows]
    left, right = (max(text_widths(texts, _FONT)) + 0.14 for texts in (names, numbers))
    size = (left + _BAR + right, _ROW * len(rows))
    with open_canvas(path, title, [f"the nearest texts, by {score}"], [*names, *numbers], *size) as canvas:
        axes = canvas.add_axes(left, 0.0, _BAR, size[1])
        axes.barh(range(len(rows)), [min(max(value, 0.0), 1.0) for _, value in rows], height=0.6, color=_COLOUR)
        axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xticks=[], yticks=[])
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        for n, (name, number) in enumerate(zip(names, numbers, strict=True)):
            middle = (n + 0.5) * _ROW
            canvas.write(name, left - 0.08, middle, _FONT, ha="right", va="center")
            canvas.write(number, left + _BAR + 0.08, middle, _FONT, va="center", color="#555555")
    return Path(path)
