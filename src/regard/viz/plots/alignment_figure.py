"""Alignments as heat maps in one file, each with cells of its own scale, laid out in rows as they fit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from regard.viz.plots.canvas import COLOUR_BAR, AxisLabels, Canvas, Scale, axis_labels, fit_scale, open_canvas
from regard.viz.plots.figure_file import check_figure_path, speller
from regard.viz.plots.panels import frame_cell, rotate_long_labels
from regard.viz.plots.typesetting import text_widths, wrap
from regard.viz.text import labels

if TYPE_CHECKING:
    from regard.viz.alignment import Alignment

# inches: of a cell, the longest side of a map, the width of several maps side by side, which a page can still show
# without small letters, and the greatest height of the figure
_CELL, _MAX_SIDE, _MAX_WIDTH, _MAX_HEIGHT = 0.17, 11.0, 7.0, 200.0
# inches: the least width that a text is wrapped to, and the gap between maps
_MIN_TEXT_WIDTH, _GAP = 2.4, 0.25
# cells per side; a longer map is max-pooled, a screen has no more pixels
_MAX_CELLS = 1024
# points of the texts above a map, and the most lines of one text
_FONT, _MAX_LINES = 8.0, 6
HARD_NOTE = "hard attention: of each row, only the key of the greatest weight was read"
FRAMED_NOTE = f"{HARD_NOTE}; it has a frame"
# an invisible mark that gives the characters around it their direction
_LEFT_TO_RIGHT = "\u200e"


@dataclass(frozen=True, eq=False)
class _MeasuredMap:
    """A map with its texts and labels, measured in inches."""

    cells: Tensor  # "t s"
    read: list[int]  # the column that each row of hard attention read, -1 for none
    lines: list[str]
    rows: AxisLabels
    columns: AxisLabels
    width: float

    @property
    def lines_height(self) -> float:
        return len(self.lines) * _FONT * 1.3 / 72 + 0.06

    @property
    def columns_height(self) -> float:
        is_flat = all(len(label) <= 3 for label in self.columns.labels)
        return self.columns.font_size * 1.3 / 72 + 0.05 if is_flat else self.columns.width + 0.03

    @property
    def height(self) -> float:
        return self.lines_height + self.columns_height + self.rows.length + _GAP


def draw(alignments: Sequence["Alignment"], path: Path) -> Path:
    """Draws the alignments, target on the left, source above; cells have one size where they fit."""
    maps = _measure(alignments, path)
    if (height := _total_height(_rows_of_maps(maps))) > _MAX_HEIGHT:
        raise ValueError(
            f"a figure is at most {_MAX_HEIGHT:.0f} inches high, {len(alignments)} alignments of up to "
            f"{max(len(alignment.target) for alignment in alignments)} target tokens would be {height:.0f}; "
            "draw fewer, or write .html or .txt"
        )
    return _draw_all(maps, alignments, path)


def draw_fitting(alignments: Sequence["Alignment"], path: Path) -> int:
    """Draws as many of the first alignments as fit into a figure, at least one, and returns their number."""
    maps = _measure(alignments, path)
    count = len(maps)
    while count > 1 and _total_height(_rows_of_maps(maps[:count])) > _MAX_HEIGHT:
        count -= 1
    _draw_all(maps[:count], alignments[:count], path)
    return count


def share(rows: int, columns: int) -> float:
    """The least share of a figure that a map of this shape takes: its cells and one line above them."""
    height, width = (min(_CELL * cells, _MAX_SIDE) + _GAP for cells in (rows, columns))
    return (height + _FONT / 72) * width / (_MAX_HEIGHT * _MAX_WIDTH)


def _rows_of_maps(maps: Sequence[_MeasuredMap]) -> list[list[_MeasuredMap]]:
    """About as many maps per row as rows, as far as they fit."""
    across = math.ceil(math.sqrt(len(maps)))
    rows: list[list[_MeasuredMap]] = [[]]
    for measured in maps:
        row = rows[-1]
        if len(row) == across or sum(other.width + _GAP for other in (*row, measured)) > _MAX_WIDTH:
            rows.append([measured])
        else:
            row.append(measured)
    return [row for row in rows if row]


def _total_height(rows: Sequence[Sequence[_MeasuredMap]]) -> float:
    return sum(max(measured.height for measured in row) for row in rows)


def _draw_all(maps: Sequence[_MeasuredMap], alignments: Sequence["Alignment"], path: Path) -> Path:
    rows = _rows_of_maps(maps)
    scale = fit_scale([measured.cells for measured in maps])
    width = max(sum(measured.width + _GAP for measured in row) for row in rows)
    title = "attention of the translation" if len(maps) == 1 else f"attention of {len(maps):,} translations"
    notes = [FRAMED_NOTE] if any(alignment.hard for alignment in alignments) else []
    words, height = list(texts(alignments)), max(_total_height(rows), 0.1 + scale.bar_height(0.9))
    with open_canvas(path, title, notes, words, width + COLOUR_BAR, height) as canvas:
        top = 0.0
        for row in rows:
            left = 0.0
            for measured in row:
                _draw(canvas, measured, left, top, scale)
                left += measured.width + _GAP
            top += max(measured.height for measured in row)
        canvas.add_colour_bar(width, 0.1, scale.bar_height(0.9), scale)
    return path


def texts(alignments: Sequence["Alignment"]) -> Iterator[str]:
    """All texts of the figure."""
    for alignment in alignments:
        yield from (alignment.title, alignment.note, *alignment.texts())
        yield from (labels.visible_label(token) for token in (*alignment.source, *alignment.target))


def heading(alignment: "Alignment") -> list[str]:
    """The title, or the source and below it the translation; then the note."""
    # each side is isolated: a date beside an Arabic source would be reordered
    source, target = (f"{_LEFT_TO_RIGHT}{labels.printable(text)}{_LEFT_TO_RIGHT}" for text in alignment.texts())
    lines = [labels.printable(alignment.title)] if alignment.title else [source, f"→ {target}"]
    return [*lines, *([labels.printable(alignment.note)] if alignment.note else [])]


def _measure(alignments: Sequence["Alignment"], path: Path) -> list[_MeasuredMap]:
    check_figure_path(path)
    spell = speller(path, texts(alignments))
    maps = []
    for alignment in alignments:
        cells = alignment.cells()
        rows, columns = (
            axis_labels(list(map(labels.visible_label, tokens)), min(_CELL * max(len(tokens), 1), _MAX_SIDE), path)
            for tokens in (alignment.target, alignment.source)
        )
        width = rows.width + columns.length
        text_width = max(width, _MIN_TEXT_WIDTH)
        wrapped = [wrap(spell(text), text_width, _FONT, max_lines=_MAX_LINES) for text in heading(alignment)]
        lines = [line for text_lines in wrapped for line in text_lines]
        width = max(width, *text_widths(lines, _FONT)) if lines else width
        # an empty row read nothing
        is_read = alignment.hard and len(alignment.source) > 0
        read = [int(row.argmax()) if bool(row.any()) else -1 for row in cells] if is_read else []
        maps.append(_MeasuredMap(cells, read, lines, rows, columns, width))
    return maps


def _draw(canvas: Canvas, measured: _MeasuredMap, left: float, top: float, scale: Scale) -> None:
    for n, line in enumerate(measured.lines):
        canvas.write(line, left, top + n * _FONT * 1.3 / 72, _FONT, va="top")
    top += measured.lines_height + measured.columns_height
    axes = canvas.add_axes(left + measured.rows.width, top, measured.columns.length, measured.rows.length)
    axes.spines[:].set_visible(False)
    rows, columns = measured.cells.shape
    if not measured.cells.numel():
        axes.set(xticks=[], yticks=[])
        axes.text(0.0, 1.0, "nothing to show", va="top", transform=axes.transAxes)
        return
    canvas.heatmap(axes, _pooled(measured.cells), rows, columns, scale)
    axes.xaxis.tick_top()
    measured.rows.set_on(axes.yaxis)
    measured.columns.set_on(axes.xaxis)
    axes.tick_params(length=0, rotation=0)
    rotate_long_labels(axes, measured.columns.labels[:: measured.columns.step])
    for row, column in enumerate(measured.read):
        if column >= 0:
            frame_cell(axes, column, row)


def _pooled(cells: Tensor) -> Tensor:
    rows, columns = (min(n, _MAX_CELLS) for n in cells.shape)
    return cells if (rows, columns) == tuple(cells.shape) else adaptive_max_pool2d(cells[None], (rows, columns))[0]
