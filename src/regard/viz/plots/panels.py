"""Weights as a heat map in a file: PNG, SVG or PDF, by suffix."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn.maps.attention_map import AttentionMap
from regard.common import checks
from regard.viz.plots.canvas import Scale, fit_scale
from regard.viz.plots.figure_file import figure_file
from regard.viz.plots.typesetting import wrap

# cells per side; longer maps are pooled, a screen has no more pixels
_MAX_CELLS = 512
# labels per axis; more would overlap
_MAX_LABELS = 40
# the colour of frames around cells
FRAME_COLOUR = "#D55E00"
# inches of a panel, of all panels of a row, whose labels a page can still show, of a letter, and of the colour bar
_PANEL, _MAX_WIDTH, _LETTER, _BAR = 2.9, 9.3, 0.075, 0.5
# the least inches of the cells of a panel, beside which the label of the colour bar stands
_MIN_HEIGHT = 1.4
# points of a title, and the share of a panel that it may fill
_TITLE, _TITLE_SHARE = 9.0, 0.85


@dataclass(frozen=True)
class Panel:
    """One map with its title and, if given, the labels of its rows (queries) and columns (keys)."""

    weights: Tensor | AttentionMap  # "q k"
    title: str = ""
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    stretch: bool = False  # colours from its least to its greatest weight, which then follow the title


def _cells(panel: Panel) -> Tensor:
    weights = panel.weights
    if len(weights.shape) != 2:
        raise ValueError(
            f"weights must be one map (queries, keys), got {tuple(weights.shape)}; "
            "pick a sample and a head: weights[0, 0] of a tensor, map.pick(0, 0) of a map"
        )
    for name, labels, count in (("rows", panel.rows, weights.shape[0]), ("columns", panel.columns, weights.shape[1])):
        if labels is not None and len(labels) != count:
            raise ValueError(f"{name} must label {count} positions, got {len(labels)} labels; give one each or None")
    if isinstance(weights, AttentionMap):
        weights = weights.pooled(_MAX_CELLS, _MAX_CELLS) if max(weights.shape) > _MAX_CELLS else weights.dense()
    return weights.detach().to("cpu", torch.float32)


def _panel_texts(panels: Iterable[Panel]) -> Iterator[str]:
    for panel in panels:
        yield from (panel.title, *(panel.rows or ()), *(panel.columns or ()))


def figure(panels: Panel | Sequence[Panel], path: str | Path, *, across: int = 4, cell: float | None = None,
           label: str = "weight") -> Path:  # fmt: skip
    """Draws maps side by side into a file; dark is no weight, bright the greatest. Colour-blind readers can read it.

    All panels have one size; with `cell`, all cells are squares of `cell` inches instead. The same input gives the same
    bytes. `label` names the quantity that the colours show. One scale holds for all panels but those with `stretch`;
    beside several of these, the colour bar has no numbers, as each title has its own.
    """
    path = Path(path)
    panels = list(panels) if isinstance(panels, list | tuple) else [panels]  # type: ignore[list-item]
    if not panels:
        raise ValueError("panels must hold at least one map, got none; pass Panel(weights)")
    for panel in panels:
        checks.instance_of("panels", panel, Panel, "[Panel(weights)]")
    checks.positive("across", across, "figure")
    if cell is not None:
        checks.positive("cell", cell, "figure")
    columns = min(across, len(panels))
    side = min(_PANEL, _MAX_WIDTH / columns)
    rows = -(-len(panels) // columns)
    drawn = [_DrawnPanel.of(panel, label) for panel in panels]
    shared = replace(fit_scale([each.cells for each in drawn]), name=label)
    width = side if cell is None else _panel_width(panels, cell)
    panels = [_with_title(each, width) for each in drawn]
    height = side if cell is None else _panel_height(panels, cell)
    shape = None if cell is None else _largest_shape(panels)
    # cells too small for a letter get no labels, larger ones all of them
    max_labels = _MAX_LABELS if cell is None else sys.maxsize if cell >= 1.2 * _LETTER else 0
    size = (width * columns + _BAR, height * rows)
    with figure_file(path, [*_panel_texts(panels), label], size) as (drawing, spell):
        grid = drawing.subplots(rows, columns, squeeze=False)
        for axes, panel, each in zip(grid.flat, panels, drawn, strict=False):
            _draw_panel(axes, panel, each.cells, each.scale or shared, spell, shape, max_labels)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        scales = {each.scale or shared for each in drawn}
        bar_height = 0.6 * height * rows if cell is None else min(0.6 * height * rows, _PANEL)
        _add_colour_bar(drawing, grid, scales, label, bar_height / (height * rows), spell)
    return path


@dataclass(frozen=True, eq=False)
class _DrawnPanel:
    """A panel with its cells and, if it is stretched, its own scale."""

    panel: Panel
    cells: Tensor
    scale: Scale | None

    @classmethod
    def of(cls, panel: Panel, label: str) -> "_DrawnPanel":
        cells = _cells(panel)
        if not panel.stretch or not cells.numel():
            return cls(panel, cells, None)
        low, high = float(cells.min()), float(cells.max())
        return cls(panel, cells, Scale(high if high > low else low + 1e-9, low, name=label))


def _with_title(drawn: _DrawnPanel, width: float) -> Panel:
    """The panel with its title in lines that fit over its cells, and the range of a stretched one."""
    panel, scale = drawn.panel, drawn.scale
    letters = max((len(label) for label in panel.rows or ()), default=0)
    available = max(_TITLE_SHARE * width - _LETTER * min(letters, 30), 1.0)
    lines = [part for line in panel.title.split("\n") for part in (wrap(line, available, _TITLE) if line else [""])]
    if scale is not None:
        lines.append(f"{scale.low:.2f} to {scale.high:.2f}".replace("-", "−"))
    return replace(panel, title="\n".join(lines))


def _add_colour_bar(drawing: Any, grid: Any, scales: Collection[Scale], label: str, shrink: float,
                    spell: Callable[[str], str]) -> None:  # fmt: skip
    """The bar of the only scale with its numbers, or one that says that every panel has its own range."""
    from matplotlib.cm import ScalarMappable

    if len(scales) == 1:
        (scale,) = scales
        text = scale.label
    else:
        scale, text = Scale(1.0), f"{label}, in each panel\ndark: least, bright: most"
    mappable, columns = ScalarMappable(scale.norm(), scale.colormap), grid.shape[1]
    bar = drawing.colorbar(mappable, ax=grid, shrink=shrink, fraction=0.15 / columns, aspect=20, label=spell(text))
    scale.set_ticks(bar)
    if len(scales) > 1:
        bar.set_ticks([0.0, 1.0], labels=["least", "most"])


def _largest_shape(panels: Sequence[Panel]) -> tuple[int, int]:
    """The greatest number of rows and of columns."""
    return max(panel.weights.shape[0] for panel in panels), max(panel.weights.shape[-1] for panel in panels)


def _panel_width(panels: Sequence[Panel], cell: float) -> float:
    """The inches in which the largest map fits with the labels of its rows."""
    letters = max((len(label) for panel in panels for label in panel.rows or ()), default=0)
    return max(_largest_shape(panels)[1] * cell + 0.4 + _LETTER * min(letters, 30), 2.0)


def _panel_height(panels: Sequence[Panel], cell: float) -> float:
    """The inches in which the largest map fits with the labels of its columns and its title."""
    letters = max((len(label) for panel in panels for label in panel.columns or ()), default=0)
    lines = max(panel.title.count("\n") + 1 for panel in panels)
    return max(_largest_shape(panels)[0] * cell, _MIN_HEIGHT) + 0.4 + _LETTER * min(letters, 30) + 0.16 * lines


def _set_equal_cells(axes: Any, rows: int, columns: int) -> None:
    """Gives every panel the same number of square cells, with labels beside the cells."""
    axes.set(xlim=(-0.5, max(columns, 1) - 0.5), ylim=(max(rows, 1) - 0.5, -0.5), aspect="equal", anchor="NW")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)


def _draw_panel(axes: Any, panel: Panel, cells: Tensor, scale: Scale, spell: Callable[[str], str],
                shape: tuple[int, int] | None, max_labels: int) -> None:  # fmt: skip
    """One panel, filled by its map or, in a figure of equal cells, with room for a map of `shape`."""
    axes.set_title(spell(panel.title), fontsize=_TITLE, loc="center" if shape is None else "left")
    if cells.numel():
        axes.imshow(cells.numpy(), cmap=scale.colormap, norm=scale.norm(), aspect="auto", interpolation="nearest")
    else:
        axes.set(xticks=[], yticks=[])
        axes.text(0.0, 1.0, "nothing to show", va="top", transform=axes.transAxes)
    if shape is not None:
        _set_equal_cells(axes, *shape)
    for axis, labels in ((axes.yaxis, panel.rows), (axes.xaxis, panel.columns)):
        if cells.numel() and labels is None:
            axis.get_major_locator().set_params(integer=True)
        if cells.numel() and labels is not None and len(labels) <= max_labels:
            axis.set_ticks(range(len(labels)), [spell(label) for label in labels])
            if axis is axes.xaxis:
                rotate_long_labels(axes, [spell(label) for label in labels])


def rotate_long_labels(axes: Any, columns: Sequence[str]) -> None:
    """Rotates long labels of columns; all labels, unless only a few among many are long."""
    long = [len(label) > 3 for label in columns]
    if 4 * sum(long) > len(columns):
        axes.tick_params("x", labelrotation=90)
        return
    for text, is_long in zip(axes.get_xticklabels() if any(long) else (), long, strict=False):
        text.set_rotation(90 if is_long else 0)


def frame_cell(axes: Any, column: int, row: int) -> None:
    """A frame around one cell: the query itself, or the key that hard attention read."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=FRAME_COLOUR, linewidth=1.2))
