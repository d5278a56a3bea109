"""Weights as a heat map in a file: PNG, SVG or PDF, by suffix."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attn import checks
from regard.attn.maps.attention_map import AttentionMap
from regard.viz.plots.figure_file import figure_file

# beyond this many cells a side a map is drawn coarse: a screen has no more pixels
_CELLS = 512
# labels are drawn up to this many, beyond it they would overlap
_LABELS = 40
# of frames
INK = "#D55E00"
# a panel, and a letter of a label
_INCHES, _LETTER = 2.9, 0.075


@dataclass(frozen=True)
class Panel:
    """One map with its title and, if given, what stands at its rows (queries) and columns (keys)."""

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
        weights = weights.coarse(_CELLS, _CELLS) if max(weights.shape) > _CELLS else weights.dense()
    return weights.detach().to("cpu", torch.float32)


def _words(panels: Iterable[Panel]) -> Iterator[str]:
    for panel in panels:
        yield from (panel.title, *(panel.rows or ()), *(panel.columns or ()))


def figure(panels: Panel | Sequence[Panel], path: str | Path, *, across: int = 4, cell: float | None = None,
           label: str = "weight") -> Path:  # fmt: skip
    """Draws maps side by side into a file: dark is no weight, bright is all of it, also for colour-blind eyes.

    All panels are of one size; with `cell`, all cells are, squares of so many inches. The same input gives the same
    bytes. `label` says what the colours stand for.
    """
    path = Path(path)
    panels = list(panels) if isinstance(panels, list | tuple) else [panels]  # type: ignore[list-item]
    if not panels:
        raise ValueError("panels must hold at least one map, got none; pass Panel(weights)")
    for panel in panels:
        checks.term("panels", panel, Panel, "[Panel(weights)]")
    checks.positive("across", across, "figure")
    if cell is not None:
        checks.positive("cell", cell, "figure")
    wide = min(across, len(panels))
    high = -(-len(panels) // wide)
    size = (_INCHES, _INCHES) if cell is None else _room(panels, cell)
    most = None if cell is None else _most(panels)
    # squares too small for a letter get no labels, larger ones all of them
    labelled = _LABELS if cell is None else sys.maxsize if cell >= 1.2 * _LETTER else 0
    with figure_file(path, [*_words(panels), label], (size[0] * wide + 0.5, size[1] * high)) as (drawn, spelt):
        axes = drawn.subplots(high, wide, squeeze=False)
        for place, panel in zip(axes.flat, panels, strict=False):
            _map(place, panel, spelt, most, labelled)
        for place in axes.flat[len(panels) :]:
            place.set_axis_off()
        shrink = 0.6 if cell is None else min(0.6, _INCHES / (size[1] * high))
        drawn.colorbar(_scale(), ax=axes, shrink=shrink, label=spelt(label))
    return path


def _most(panels: Sequence[Panel]) -> tuple[int, int]:
    """The most rows and the most columns of any map."""
    return max(panel.weights.shape[0] for panel in panels), max(panel.weights.shape[-1] for panel in panels)


def _room(panels: Sequence[Panel], cell: float) -> tuple[float, float]:
    """The inches, wide and high, in which the largest map fits with its labels and its title."""
    rows, columns = _most(panels)
    beside = max((len(label) for panel in panels for label in panel.rows or ()), default=0)
    below = max((len(label) for panel in panels for label in panel.columns or ()), default=0)
    lines = max(panel.title.count("\n") + 1 for panel in panels)
    return (
        max(columns * cell + 0.4 + _LETTER * min(beside, 30), 2.0),
        max(rows * cell + 0.4 + _LETTER * min(below, 30) + 0.16 * lines, 1.4),
    )


def _square(place: Any, rows: int, columns: int) -> None:
    """Room for so many cells in every panel, so that a cell is as large in all; labels next to the cells."""
    place.set(xlim=(-0.5, max(columns, 1) - 0.5), ylim=(max(rows, 1) - 0.5, -0.5), aspect="equal", anchor="NW")
    place.xaxis.tick_top()
    place.tick_params(length=0, pad=2)
    place.spines[:].set_visible(False)


def _map(place: Any, panel: Panel, spelt: Callable[[str], str], most: tuple[int, int] | None, labelled: int) -> None:
    """One panel: filled by its map, or, in a figure of equal cells, with room for the `most` rows and columns."""
    cells = _cells(panel)
    place.set_title(spelt(panel.title), fontsize=9, loc="center" if most is None else "left")
    if cells.numel():
        place.imshow(cells.numpy(), cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    else:
        place.set(xticks=[], yticks=[])
        place.text(0.0, 1.0, "nothing to look at", va="top", transform=place.transAxes)
    if most is not None:
        _square(place, *most)
    for axis, labels in ((place.yaxis, panel.rows), (place.xaxis, panel.columns)):
        if cells.numel() and labels is not None and len(labels) <= labelled:
            axis.set_ticks(range(len(labels)), [spelt(label) for label in labels])
            if axis is place.xaxis:
                turn(place, [spelt(label) for label in labels])


def turn(place: Any, columns: Sequence[str]) -> None:
    """Lays long labels of columns on their side; all of them, unless they are few among many short ones."""
    long = [len(label) > 3 for label in columns]
    if 4 * sum(long) > len(columns):
        place.tick_params("x", labelrotation=90)
        return
    for label, one in zip(place.get_xticklabels() if any(long) else (), long, strict=False):
        label.set_rotation(90 if one else 0)


def frame(axes: Any, column: int, row: int) -> None:
    """Around a place: the one that looks, or the one that was read."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.2))


def _scale() -> Any:
    """What the colours mean, also where no panel has a cell."""
    from matplotlib.cm import ScalarMappable

    scale = ScalarMappable(cmap="cividis")
    scale.set_clim(0.0, 1.0)
    return scale
