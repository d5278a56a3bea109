"""Board: a figure laid out in inches from its upper left corner, under a title, with rulers whose labels thin out."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.viz.plots.figure_file import figure_file, speller
from regard.viz.plots.typesetting import text_widths, wrap
from regard.viz.text import fonts, labels

# points: of the title, of the notes under it, and of labels, which are never smaller than they can be read in print
_TITLE, _NOTE = 9.0, 6.5
LEAST, MOST = 5.0, 8.0
# inches around everything, and the least that a title needs
_EDGE, _NARROW = 0.12, 3.0
# longer labels are cut
_COLUMNS = 18
# colours that colour-blind eyes tell apart: of weights, and of differences around nothing
WEIGHTS, DIFFERENCES = "cividis", "PuOr_r"
# of what may not be looked at, which neither of them has
MASKED = "#E3E5E8"


@dataclass(frozen=True)
class Scale:
    """What colours mean: from `low` to `high`, by `power` of the distance from nothing (0.5 is the square root)."""

    high: float
    low: float = 0.0
    power: float = 1.0
    name: str = "weight"

    @property
    def label(self) -> str:
        return self.name if self.power == 1.0 else f"{self.name}, by its square root"

    @property
    def map(self) -> str:
        return DIFFERENCES if self.low < 0 else WEIGHTS

    def norm(self) -> Any:
        from matplotlib.colors import Normalize, PowerNorm

        if self.power == 1.0:
            return Normalize(self.low, self.high)
        return PowerNorm(self.power, self.low, self.high)


def scale(cells: Iterable[Tensor], *, signed: bool = False, power: float = 1.0) -> Scale:
    """From nothing to the largest weight there is; of differences, as far down as up."""
    high = max((float(one.abs().max()) for one in cells if one.numel()), default=0.0) or 1.0
    return Scale(high, -high if signed else 0.0, power, "difference" if signed else "weight")


class Canvas:
    """A sheet of `width` × `height` inches below its title."""

    def __init__(self, drawn: Any, spelt: Callable[[str], str], title: str, notes: Sequence[str], width: float) -> None:
        self.drawn, self.spelt, self.width = drawn, spelt, max(width, _NARROW)
        from matplotlib import rcParams

        # the fonts that stand in for other scripts have no bold face, and matplotlib would complain of each
        self.bold = "bold" if len(rcParams["font.family"]) == 1 else "normal"
        self._lines = [(line, _TITLE, self.bold) for line in wrap(title, self.width, _TITLE, self.bold)]
        self._lines += [(line, _NOTE, "normal") for note in notes if note for line in wrap(note, self.width, _NOTE)]
        self._header = sum(size for _, size, _ in self._lines) * 1.3 / 72 + 0.08
        self._written: list[Any] = []

    def resize(self, height: float) -> None:
        """As high as what stands below the title; with it, if it does not stand there yet."""
        self._height = height + self._header + 2 * _EDGE
        self.drawn.set_size_inches(self.width + 2 * _EDGE, self._height)
        at = -self._header
        for number, (line, size, weight) in enumerate(self._lines):
            if number == len(self._written):
                self._written.append(self.write(line, 0.0, at, size, va="top", weight=weight))
            self._written[number].set_position(self.at(0.0, at))
            at += size * 1.3 / 72

    def at(self, left: float, top: float) -> tuple[float, float]:
        """A point of the figure, for matplotlib."""
        return (left + _EDGE) / (self.width + 2 * _EDGE), 1 - (top + self._header + _EDGE) / self._height

    def write(self, text: str, left: float, top: float, size: float, **how: Any) -> Any:
        """Text at a point, as matplotlib's `text` takes its manner."""
        return self.drawn.text(*self.at(left, top), self.spelt(text), fontsize=size, **how)

    def place(self, left: float, top: float, width: float, height: float) -> Any:
        """Axes at a place."""
        (x0, y1), (x1, y0) = self.at(left, top), self.at(left + width, top + height)
        axes = self.drawn.add_axes((x0, y0, x1 - x0, y1 - y0))
        axes.tick_params(length=2, width=0.5, pad=1.5, labelsize=LEAST + 1)
        axes.spines[:].set_linewidth(0.5)
        return axes

    def bar(self, left: float, top: float, height: float, meaning: Scale) -> None:
        """What the colours mean."""
        from matplotlib.cm import ScalarMappable

        axes = self.place(left, top, 0.1, height)
        bar = self.drawn.colorbar(ScalarMappable(meaning.norm(), meaning.map), cax=axes)
        bar.outline.set_linewidth(0.5)
        ticks = _round(meaning)
        bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
        bar.ax.minorticks_off()
        axes.tick_params(length=2, width=0.5, pad=1.5, labelsize=LEAST + 1)
        bar.set_label(meaning.label, fontsize=LEAST + 1)

    def heat(
        self, axes: Any, cells: Tensor, rows: int, columns: int, meaning: Scale, masked: Tensor | None = None
    ) -> None:
        """Cells as one picture over so many rows and columns, of which a cell may be several; masked ones are grey."""
        where = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        if cells.numel():
            colours = {"cmap": meaning.map, "norm": meaning.norm()}
            seen = cells.numpy()
            if masked is not None:
                import numpy as np
                from matplotlib import colormaps

                seen = np.ma.masked_array(seen, masked.numpy())
                colours["cmap"] = colormaps[meaning.map].with_extremes(bad=MASKED)
            axes.imshow(seen, **colours, aspect="auto", interpolation="nearest", extent=where)
        else:
            axes.text(0.5, 0.5, "nothing", ha="center", va="center", transform=axes.transAxes, fontsize=LEAST + 1)
            axes.set(xlim=(-0.5, 0.5), ylim=(0.5, -0.5))


BAR = 0.62  # inches that a bar takes with its numbers


def _round(meaning: Scale) -> list[float]:
    """Both ends and what lies between."""
    if meaning.low < 0:
        return [meaning.low, meaning.low / 2, 0.0, meaning.high / 2, meaning.high]
    far = meaning.high - meaning.low
    return [meaning.low + far * part ** (1 / meaning.power) for part in (0.0, 0.25, 0.5, 0.75, 1.0)]


@dataclass(frozen=True)
class Ruler:
    """Labels along an axis of so many inches: at every `step`-th position, `size` points high, cut where too long."""

    labels: tuple[str, ...]
    inches: float
    step: int
    size: float
    room: float  # inches that the widest label takes

    @property
    def flat(self) -> bool:
        """Whether the labels fit beside each other, so that they need not be turned."""
        pitch = self.inches / max(len(self.labels), 1)
        return self.room + 0.02 <= pitch * self.step

    @property
    def below(self) -> float:
        """Inches that it takes under or over an axis that runs across."""
        return self.size * 1.3 / 72 + 0.05 if self.flat else self.room + 0.03

    def lay(self, axis: Any) -> None:
        at = range(0, len(self.labels), self.step)
        axis.set_ticks(at, [self.labels[n] for n in at], fontsize=self.size)
        if axis.axis_name == "x" and not self.flat:
            axis.set_tick_params(rotation=90)


def ruler(pieces: Sequence[str], inches: float, path: str | Path, most: int = _COLUMNS) -> Ruler:
    """All labels where they fit, else every second, fifth, tenth …: never one over another, never too small.

    They are spelt as the kind of file wants it, and cut after `most` columns.
    """
    pitch = 72 * inches / max(len(pieces), 1)
    steps = (n * 10**power for power in range(12) for n in (1, 2, 5))
    step = next(n for n in steps if n * pitch >= LEAST * 1.15 or n >= len(pieces))
    size = min(max(step * pitch / 1.15, LEAST), MOST - 1)
    spelt = speller(path, pieces)
    said = [labels.shortened(spelt(piece), most) for piece in pieces]
    room = max(text_widths(said[::step], size), default=0.0) + 0.06
    return Ruler(tuple(said), inches, step, size, room)


def side(count: int, least: float = 0.5, most: float = 5.0) -> float:
    """Inches for so many positions: a sixth each, as long as that fits on a page."""
    return min(max(count / 6, least), most)


@contextlib.contextmanager
def board(
    path: str | Path, title: str, notes: Sequence[str], words: Iterable[str], width: float, height: float | None = None
) -> Iterator[Canvas]:
    """A board, written to `path` at the end; without a height, who draws calls `resize` when it is known.

    A character that no font of the machine has is spelt [U+XXXX], and a note says which font would have it.
    """
    path, words = Path(path), list(words)
    with figure_file(path, [title, *notes, *words], (width, height or 1.0)) as (drawn, spelt):
        # an SVG leaves the drawing of letters to who reads it
        lacking = "" if path.suffix == ".svg" else fonts.wanted([title, *notes, *words])
        drawn.set_layout_engine("none")
        made = Canvas(drawn, spelt, title, [*notes, lacking], width)
        if height is not None:
            made.resize(height)
        yield made
