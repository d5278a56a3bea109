"""Weights as a heat map in a file: PNG, SVG or PDF, by suffix."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.viz.plots.canvas import Scale, fit_scale
from regard.viz.plots.figure_file import figure_file

# cells per side; longer maps are pooled, a screen has no more pixels
_MAX_CELLS = 512
# labels per axis; more would overlap
_MAX_LABELS = 40
# the colour of frames around cells
FRAME_COLOUR = "#D55E00"
# inches of a panel, and of a letter of a label
_PANEL, _LETTER = 2.9, 0.075


@dataclass(frozen=True)
class Panel:
    """One map with its title and, if given, the labels of its rows (queries) and columns (keys)."""

    weights: Tensor | AttentionMap  # "q k"
    title: str = ""
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None


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
    bytes. `label` names the quantity that the colours show.
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
    from matplotlib.cm import ScalarMappable

    columns = min(across, len(panels))
    rows = -(-len(panels) // columns)
    width, height = (_PANEL, _PANEL) if cell is None else _panel_size(panels, cell)
    shape = None if cell is None else _largest_shape(panels)
    # cells too small for a letter get no labels, larger ones all of them
    max_labels = _MAX_LABELS if cell is None else sys.maxsize if cell >= 1.2 * _LETTER else 0
    size = (width * columns + 0.5, height * rows)
    drawn = [(panel, _cells(panel)) for panel in panels]
    scale = replace(fit_scale([cells for _, cells in drawn]), name=label)
    with figure_file(path, [*_panel_texts(panels), label], size) as (drawing, spell):
        grid = drawing.subplots(rows, columns, squeeze=False)
        for axes, (panel, cells) in zip(grid.flat, drawn, strict=False):
            _draw_panel(axes, panel, cells, scale, spell, shape, max_labels)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        shrink = 0.6 if cell is None else min(0.6, _PANEL / (height * rows))
        drawing.colorbar(ScalarMappable(scale.norm(), scale.colormap), ax=grid, shrink=shrink, label=spell(scale.label))
    return path


def _largest_shape(panels: Sequence[Panel]) -> tuple[int, int]:
    """The greatest number of rows and of columns."""
    return max(panel.weights.shape[0] for panel in panels), max(panel.weights.shape[-1] for panel in panels)


def _panel_size(panels: Sequence[Panel], cell: float) -> tuple[float, float]:
    """The inches, wide and high, in which the largest map fits with its labels and its title."""
    rows, columns = _largest_shape(panels)
    row_letters = max((len(label) for panel in panels for label in panel.rows or ()), default=0)
    column_letters = max((len(label) for panel in panels for label in panel.columns or ()), default=0)
    lines = max(panel.title.count("\n") + 1 for panel in panels)
    return (
        max(columns * cell + 0.4 + _LETTER * min(row_letters, 30), 2.0),
        max(rows * cell + 0.4 + _LETTER * min(column_letters, 30) + 0.16 * lines, 1.4),
    )


def _set_equal_cells(axes: Any, rows: int, columns: int) -> None:
    """Gives every panel the same number of square cells, with labels beside the cells."""
    axes.set(xlim=(-0.5, max(columns, 1) - 0.5), ylim=(max(rows, 1) - 0.5, -0.5), aspect="equal", anchor="NW")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)


def _draw_panel(axes: Any, panel: Panel, cells: Tensor, scale: Scale, spell: Callable[[str], str],
                shape: tuple[int, int] | None, max_labels: int) -> None:  # fmt: skip
    """One panel, filled by its map or, in a figure of equal cells, with room for a map of `shape`."""
    axes.set_title(spell(panel.title), fontsize=9, loc="center" if shape is None else "left")
    if cells.numel():
        axes.imshow(cells.numpy(), cmap=scale.colormap, norm=scale.norm(), aspect="auto", interpolation="nearest")
    else:
        axes.set(xticks=[], yticks=[])
        axes.text(0.0, 1.0, "nothing to show", va="top", transform=axes.transAxes)
    if shape is not None:
        _set_equal_cells(axes, *shape)
    for axis, labels in ((axes.yaxis, panel.rows), (axes.xaxis, panel.columns)):
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
