"""Alignments as heat maps in one file: each of a scale of its own, laid beside and below each other as they fit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from regard.viz.plots.canvas import BAR, Canvas, Ruler, Scale, board, ruler
from regard.viz.plots.figure_file import drawable, speller
from regard.viz.plots.heatmap import frame, turn
from regard.viz.plots.typesetting import text_widths, wrap
from regard.viz.text import labels

if TYPE_CHECKING:
    from regard.viz.alignment.alignment import Alignment

# inches: of a cell, the most of a map's side, and how wide and high the whole may grow
_CELL, _SIDE, _WIDE, _HIGH = 0.17, 11.0, 14.0, 200.0
# a text is never wrapped to less than this many inches, and there are so many between panels
_NARROW, _GAP = 2.4, 0.25
# beyond so many cells a side, one that is drawn is the greatest of several: a screen has no more pixels
_CELLS = 1024
# points of what stands above a map, and the most lines that one text takes there
_FONT, _LINES = 8.0, 6
# what hard attention is told as; and where a frame shows it
HARD = "hard attention: of each piece, only the place of its greatest weight was read"
FRAMED = f"{HARD}; it has a frame"
# a mark without a width that letters on both sides of it take their direction from
_LEFT_TO_RIGHT = "\u200e"


@dataclass(frozen=True, eq=False)
class _Laid:
    """A map with what stands around it, measured in inches."""

    cells: Tensor  # "t s"
    read: list[int]
    lines: list[str]
    rows: Ruler
    columns: Ruler
    width: float

    @property
    def header(self) -> float:
        return len(self.lines) * _FONT * 1.3 / 72 + 0.06

    @property
    def above(self) -> float:
        flat = all(len(label) <= 3 for label in self.columns.labels)
        return self.columns.size * 1.3 / 72 + 0.05 if flat else self.columns.room + 0.03

    @property
    def height(self) -> float:
        return self.header + self.above + self.rows.inches + _GAP


def figure(alignments: Sequence["Alignment"], path: Path) -> Path:
    """Draws the alignments, the translation on the left, the source above; cells are of one size where they fit."""
    laid = _laid(alignments, path)
    if (high := _high(_shelves(laid))) > _HIGH:
        raise ValueError(
            f"a figure is at most {_HIGH:.0f} inches high, {len(alignments)} alignments of up to "
            f"{max(len(one.target) for one in alignments)} target pieces would be {high:.0f}; draw fewer, "
            "or write .html or .txt"
        )
    return _draw_all(laid, alignments, path)


def fitting(alignments: Sequence["Alignment"], path: Path) -> int:
    """Draws the first of the alignments, as many as a figure has room for, and tells how many those are."""
    laid = _laid(alignments, path)
    # one always fits
    count = len(laid)
    while count > 1 and _high(_shelves(laid[:count])) > _HIGH:
        count -= 1
    _draw_all(laid[:count], alignments[:count], path)
    return count


def share(rows: int, columns: int) -> float:
    """How much of a figure a map of so many cells takes at least: its cells and a line above them."""
    height, width = (min(_CELL * cells, _SIDE) + _GAP for cells in (rows, columns))
    return (height + _FONT / 72) * width / (_HIGH * _WIDE)


def _shelves(laid: Sequence[_Laid]) -> list[list[_Laid]]:
    """About as many maps beside each other as below, as far as they fit."""
    across = math.ceil(math.sqrt(len(laid)))
    shelves: list[list[_Laid]] = [[]]
    for one in laid:
        shelf = shelves[-1]
        if len(shelf) == across or sum(each.width + _GAP for each in (*shelf, one)) > _WIDE:
            shelves.append([one])
        else:
            shelf.append(one)
    return [shelf for shelf in shelves if shelf]


def _high(shelves: Sequence[Sequence[_Laid]]) -> float:
    return sum(max(one.height for one in shelf) for shelf in shelves)


def _draw_all(laid: Sequence[_Laid], alignments: Sequence["Alignment"], path: Path) -> Path:
    shelves = _shelves(laid)
    wide = max(sum(one.width + _GAP for one in shelf) for shelf in shelves)
    named = "what the translation looked at" if len(laid) == 1 else f"what {len(laid):,} translations looked at"
    told = [FRAMED] if any(one.hard for one in alignments) else []
    with board(path, named, told, list(words(alignments)), wide + BAR, max(_high(shelves), 1.1)) as b:
        top = 0.0
        for shelf in shelves:
            left = 0.0
            for one in shelf:
                _draw(b, one, left, top)
                left += one.width + _GAP
            top += max(one.height for one in shelf)
        b.bar(wide, 0.1, 0.9, Scale(1.0))
    return path


def words(alignments: Sequence["Alignment"]) -> Iterator[str]:
    """All that is written in their figure."""
    for one in alignments:
        yield from (one.title, one.note, *one.texts())
        yield from (labels.shown(piece) for piece in (*one.source, *one.target))


def heading(one: "Alignment") -> list[str]:
    """The title, or the source and below it the translation; then the note."""
    # each side by itself: beside an Arabic source a date would turn round
    source, target = (f"{_LEFT_TO_RIGHT}{labels.legible(text)}{_LEFT_TO_RIGHT}" for text in one.texts())
    lines = [labels.legible(one.title)] if one.title else [source, f"→ {target}"]
    return [*lines, *([labels.legible(one.note)] if one.note else [])]


def _laid(alignments: Sequence["Alignment"], path: Path) -> list[_Laid]:
    drawable(path)
    spelt = speller(path, words(alignments))
    found = []
    for one in alignments:
        cells = one.cells()
        rows, columns = (
            ruler([labels.shown(piece) for piece in pieces], min(_CELL * max(len(pieces), 1), _SIDE), path)
            for pieces in (one.target, one.source)
        )
        own = rows.room + columns.inches
        lines = [
            line for text in heading(one) for line in wrap(spelt(text), max(own, _NARROW), _FONT, max_lines=_LINES)
        ]
        width = max(own, *text_widths(lines, _FONT)) if lines else own
        # an empty row read nothing
        read = [int(row.argmax()) if bool(row.any()) else -1 for row in cells] if one.hard and len(one.source) else []
        found.append(_Laid(cells, read, lines, rows, columns, width))
    return found


def _draw(b: Canvas, one: _Laid, left: float, top: float) -> None:
    for n, line in enumerate(one.lines):
        b.write(line, left, top + n * _FONT * 1.3 / 72, _FONT, va="top")
    top += one.header
    axes = b.place(left + one.rows.room, top + one.above, one.columns.inches, one.rows.inches)
    axes.spines[:].set_visible(False)
    rows, columns = one.cells.shape
    if not one.cells.numel():
        axes.set(xticks=[], yticks=[])
        axes.text(0.0, 1.0, "nothing to look at", va="top", transform=axes.transAxes)
        return
    b.heat(axes, _pooled(one.cells), rows, columns, Scale(1.0))
    axes.xaxis.tick_top()
    for axis, along in ((axes.yaxis, one.rows), (axes.xaxis, one.columns)):
        along.lay(axis)
    axes.tick_params(length=0, rotation=0)
    turn(axes, one.columns.labels[:: one.columns.step])
    for row, column in enumerate(one.read):
        if column >= 0:
            frame(axes, column, row)


def _pooled(cells: Tensor) -> Tensor:
    rows, columns = (min(n, _CELLS) for n in cells.shape)
    return cells if (rows, columns) == tuple(cells.shape) else adaptive_max_pool2d(cells[None], (rows, columns))[0]
