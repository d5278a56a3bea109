"""The figure of a claim: the mean of the seeds, and the range from the lowest to the highest of them."""

import math
import textwrap
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.claims.claim import Claim, Measured, Panel
from regard.viz.plots.curve import LINE_COLOURS

# lines are told apart by their markers too, not by colour alone
_MARKERS = "osv^D<>*Xph"
# panels side by side; their inches, and those of the legend
_ACROSS, _WIDE, _HIGH, _LEGEND = 2, 3.7, 2.9, 1.5
# the width of a letter below a logarithmic axis, as a share of the axis; letters of a line beside an axis
_LETTER, _LINE_LETTERS = 0.03, 36
# letters of a name below a group of bars; longer names are rotated
_LEVEL_LETTERS = 40
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "regard", "font.size": 9, "font.family": "sans-serif"}


def draw(claim: Claim, result: Measured, path: Path) -> Path:
    """Writes the figure, two panels side by side; the same numbers give the same file."""
    with matplotlib.rc_context(_STYLE):
        count = len(claim.panels)
        columns = min(count, _ACROSS)
        rows = math.ceil(count / columns)
        figure = Figure(figsize=(_WIDE * columns + _LEGEND, _HIGH * rows), layout="constrained")
        for n, (name, panel) in enumerate(claim.panels.items(), 1):
            _draw_panel(figure.add_subplot(rows, columns, n), result, name, panel)
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        # a curve alone in its panel is named by the axis
        if any(len(result.series(name)) > 1 for name in claim.panels):
            figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
    return path


def _draw_panel(axes: Axes, result: Measured, name: str, panel: Panel) -> None:
    xs = result.xs(name)
    is_named = any(isinstance(x, str) for x in xs)
    axes.set_xlabel(panel.x)
    axes.set_ylabel("\n".join(textwrap.wrap(panel.y, _LINE_LETTERS)))
    if panel.log_x:
        axes.set_xscale("log", base=2)
    if panel.log_y:
        axes.set_yscale("log", nonpositive="mask")
    places: dict[float | str, float] = {x: float(n if is_named else x) for n, x in enumerate(xs)}
    names = [series for other in dict.fromkeys(p.panel for p in result.points) for series in result.series(other)]
    drawn = [series for series in dict.fromkeys(names) if result.curve(name, series)]
    for number, series in enumerate(dict.fromkeys(names)):
        if series not in drawn:
            continue
        points = result.curve(name, series)
        at, means = [places[point.x] for point in points], [point.mean for point in points]
        ranges = [[point.mean - point.low for point in points], [point.high - point.mean for point in points]]
        colour = LINE_COLOURS[number % len(LINE_COLOURS)]
        if is_named and not panel.log_y:
            # series side by side, in groups of bars
            width = 0.8 / len(drawn)
            centres = [x + (drawn.index(series) - (len(drawn) - 1) / 2) * width for x in at]
            axes.bar(centres, means, 0.9 * width, yerr=ranges, capsize=3, color=colour, label=series)
            continue
        line = "-" if number < len(LINE_COLOURS) else "--"
        style = {"color": colour, "marker": _MARKERS[number % len(_MARKERS)], "label": series}
        axes.errorbar(at, means, ranges, capsize=3, linestyle="none" if is_named else line, **style)
    if is_named:
        axes.set_xticks(list(places.values()), [str(x) for x in xs])
        axes.set_xlim(-0.6, len(xs) - 0.4)
        if sum(len(str(x)) for x in xs) > _LEVEL_LETTERS:
            axes.tick_params("x", labelrotation=30)
    elif panel.log_x:
        ticks = _distant_ticks([place for place in places.values() if place > 0])
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    if is_named or panel.log_x:
        axes.minorticks_off()
    axes.grid(alpha=0.3, axis="y" if is_named else "both")
    axes.spines[["top", "right"]].set_visible(False)


def _distant_ticks(places: list[float]) -> list[float]:
    """The places whose labels do not overlap on a logarithmic axis, from the greatest down."""
    places = sorted(places)
    letters = max(len(f"{place:g}") for place in places)
    extent = math.log(places[-1] / places[0]) or 1.0
    kept: list[float] = []
    for place in reversed(places):
        if not kept or math.log(kept[-1] / place) / extent >= _LETTER * (letters + 1):
            kept.append(place)
    return kept[::-1]
