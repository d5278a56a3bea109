"""The figure of a claim: the mean of the seeds, and the range from the lowest to the highest of them."""

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.claims.claim import Claim, Measured, Panel

# lines are told apart by their markers too, not by colour alone
_MARKERS = "osv^D<>*Xph"
# labels of an axis that have room side by side
_MOST_LEVEL = 8
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "regard", "font.size": 9, "font.family": "sans-serif"}


def draw(claim: Claim, result: Measured, path: Path) -> Path:
    """Writes the figure, one panel beside the other; the same numbers give the same file."""
    with matplotlib.rc_context(_STYLE):
        count = len(claim.panels)
        figure = Figure(figsize=(4.4 * count + 1.6, 3.2), layout="constrained")
        for n, (name, panel) in enumerate(claim.panels.items(), 1):
            _draw_panel(figure.add_subplot(1, count, n), result, name, panel)
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
    places: dict[float | str, float] = {x: float(n if isinstance(x, str) else x) for n, x in enumerate(xs)}
    is_named = any(isinstance(x, str) for x in xs)
    names = [series for other in dict.fromkeys(p.panel for p in result.points) for series in result.series(other)]
    for number, series in enumerate(dict.fromkeys(names)):
        points = result.curve(name, series)
        if not points:
            continue
        at, means = [places[point.x] for point in points], [point.mean for point in points]
        style = {"color": f"C{number % 10}", "marker": _MARKERS[number % len(_MARKERS)], "label": series}
        below = [point.mean - point.low for point in points]
        above = [point.high - point.mean for point in points]
        axes.errorbar(at, means, [below, above], capsize=3, linestyle="none" if is_named else "-", **style)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.log_x:
        axes.set_xscale("log", base=2)
    if panel.log_y:
        axes.set_yscale("log", nonpositive="mask")
    if is_named or panel.log_x:
        axes.set_xticks(list(places.values()), [x if isinstance(x, str) else f"{x:g}" for x in xs])
        axes.minorticks_off()
    if is_named or len(xs) > _MOST_LEVEL:
        axes.tick_params("x", labelrotation=30)
    axes.grid(alpha=0.3)
