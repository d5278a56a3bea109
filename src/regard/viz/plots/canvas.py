"""Canvas: a figure laid out in inches from its upper left corner, under a title, with axis labels that thin out."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.viz.plots.figure_file import figure_file, speller
from regard.viz.plots.typesetting import text_widths, wrap
from regard.viz.text import fonts, labels

# points: of the title, of the notes under it, and of labels, which can be read in print and on a page of documentation
_TITLE, _NOTE = 9.0, 6.5
MIN_FONT, MAX_FONT = 6.5, 8.0
# inches around everything, and the least width of a title
_MARGIN, _MIN_WIDTH = 0.12, 3.0
# columns of a label above a map and beside it; longer ones are cut
_MAX_COLUMNS, ROW_COLUMNS = 18, 40
# inches that a colour bar takes with its numbers
COLOUR_BAR = 0.76
# colour maps that colour-blind readers can read: of weights, and of differences around zero; html/page.js has them too
WEIGHTS, DIFFERENCES = "cividis", "PuOr_r"
# the colour of masked cells, which neither colour map contains
MASKED = "#E3E5E8"


@dataclass(frozen=True)
class Scale:
    """The meaning of colours: from `low` to `high`, by `power` of the distance from zero (0.5 is the square root).

    One rule for figures, pages and services, by day and by night: dark is no weight, bright the greatest that is drawn.
    """

    high: float
    low: float = 0.0
    power: float = 1.0
    name: str = "weight"

    @property
    def label(self) -> str:
        quantity = self.name if self.power == 1.0 else f"{self.name}, by its square root"
        dark = "least" if self.low else "none"
        return f"{quantity}\n{'pale: none' if self.is_signed else f'dark: {dark}, bright: most'}"

    @property
    def is_signed(self) -> bool:
        """Whether the scale is symmetric around zero, as that of differences."""
        return self.low < 0 and self.low == -self.high

    @property
    def colormap(self) -> str:
        return DIFFERENCES if self.is_signed else WEIGHTS

    def norm(self) -> Any:
        from matplotlib.colors import Normalize, PowerNorm

        if self.power == 1.0:
            return Normalize(self.low, self.high)
        return PowerNorm(self.power, self.low, self.high)

    def ticks(self) -> list[float]:
        """Both ends and some values between them."""
        if self.is_signed:
            return [self.low, self.low / 2, 0.0, self.high / 2, self.high]
        extent = self.high - self.low
        return [self.low + extent * part ** (1 / self.power) for part in (0.0, 0.25, 0.5, 0.75, 1.0)]

    def set_ticks(self, bar: Any) -> None:
        """Numbers the ticks of a colour bar of matplotlib."""
        ticks = self.ticks()
        bar.set_ticks(ticks, labels=[f"{tick:.2g}".replace("-", "−") for tick in ticks])
        bar.ax.minorticks_off()

    def bar_height(self, height: float) -> float:
        """Inches of a colour bar beside a map of this height: as high as the map, or as its label is long."""
        return max(height, *text_widths(self.label.split("\n"), MIN_FONT))


def fit_scale(cells: Iterable[Tensor], *, signed: bool = False, power: float = 1.0) -> Scale:
    """From zero to the greatest weight; for differences, symmetric around zero."""
    high = max((float(part.abs().max()) for part in cells if part.numel()), default=0.0) or 1.0
    return Scale(high, -high if signed else 0.0, power, "difference" if signed else "weight")


class Canvas:
    """An area of `width` × `height` inches below its title."""

    def __init__(
        self, figure: Any, spell: Callable[[str], str], title: str, notes: Sequence[str], width: float
    ) -> None:
        self.figure, self.spell, self.width = figure, spell, max(width, _MIN_WIDTH)
        from matplotlib import rcParams

        # fallback fonts have no bold face, and matplotlib would warn of each
        self.bold = "bold" if len(rcParams["font.family"]) == 1 else "normal"
        self._lines = [(line, _TITLE, self.bold) for line in wrap(title, self.width, _TITLE, self.bold)]
        self._lines += [(line, _NOTE, "normal") for note in notes if note for line in wrap(note, self.width, _NOTE)]
        self._header = sum(size for _, size, _ in self._lines) * 1.3 / 72 + 0.08
        self._header_texts: list[Any] = []

    def resize(self, height: float) -> None:
        """Sets the height of the area below the title, and writes or moves the title."""
        self._height = height + self._header + 2 * _MARGIN
        self.figure.set_size_inches(self.width + 2 * _MARGIN, self._height)
        top = -self._header
        for number, (line, size, weight) in enumerate(self._lines):
            if number == len(self._header_texts):
                self._header_texts.append(self.write(line, 0.0, top, size, va="top", weight=weight))
            self._header_texts[number].set_position(self.figure_point(0.0, top))
            top += size * 1.3 / 72

    def shrink(self, width: float) -> None:
        """Makes the area as narrow as `width`, or as the title and its notes need; `resize` follows."""
        needed = [*(text_widths([line], size)[0] for line, size, _ in self._lines), width]
        self.width = min(self.width, max(*needed, _MIN_WIDTH))

    def figure_point(self, left: float, top: float) -> tuple[float, float]:
        """A point in matplotlib's figure coordinates."""
        return (left + _MARGIN) / (self.width + 2 * _MARGIN), 1 - (top + self._header + _MARGIN) / self._height

    def write(self, text: str, left: float, top: float, size: float, **options: Any) -> Any:
        """Text at a point, with options of matplotlib's `text`."""
        return self.figure.text(*self.figure_point(left, top), self.spell(text), fontsize=size, **options)

    def add_axes(self, left: float, top: float, width: float, height: float) -> Any:
        (x0, y1), (x1, y0) = self.figure_point(left, top), self.figure_point(left + width, top + height)
        axes = self.figure.add_axes((x0, y0, x1 - x0, y1 - y0))
        axes.tick_params(length=2, width=0.5, pad=1.5, labelsize=MIN_FONT)
        axes.spines[:].set_linewidth(0.5)
        return axes

    def add_colour_bar(self, left: float, top: float, height: float, scale: Scale) -> None:
        from matplotlib.cm import ScalarMappable

        axes = self.add_axes(left, top, 0.1, height)
        bar = self.figure.colorbar(ScalarMappable(scale.norm(), scale.colormap), cax=axes)
        bar.outline.set_linewidth(0.5)
        scale.set_ticks(bar)
        axes.tick_params(length=2, width=0.5, pad=1.5, labelsize=MIN_FONT)
        bar.set_label(scale.label, fontsize=MIN_FONT)

    def heatmap(
        self, axes: Any, cells: Tensor, rows: int, columns: int, scale: Scale, masked: Tensor | None = None
    ) -> None:
        """Draws cells as one image over `rows` × `columns` positions, several per pooled cell; masked ones are grey."""
        if not cells.numel():
            axes.text(0.5, 0.5, "nothing", ha="center", va="center", transform=axes.transAxes, fontsize=MIN_FONT)
            axes.set(xlim=(-0.5, 0.5), ylim=(0.5, -0.5))
            return
        colours = {"cmap": scale.colormap, "norm": scale.norm()}
        image = cells.numpy()
        if masked is not None:
            import numpy as np
            from matplotlib import colormaps

            image = np.ma.masked_array(image, masked.numpy())
            colours["cmap"] = colormaps[scale.colormap].with_extremes(bad=MASKED)
        extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        axes.imshow(image, **colours, aspect="auto", interpolation="nearest", extent=extent)


@dataclass(frozen=True)
class AxisLabels:
    """Labels along an axis of `length` inches: one at every `step`-th position, cut where it is too long."""

    labels: tuple[str, ...]
    length: float
    step: int
    font_size: float
    width: float  # inches of the widest label

    @property
    def is_flat(self) -> bool:
        """Whether the labels fit side by side along a horizontal axis without rotation."""
        pitch = self.length / max(len(self.labels), 1)
        return self.width + 0.02 <= pitch * self.step

    @property
    def height(self) -> float:
        """Inches above or below a horizontal axis."""
        return self.font_size * 1.3 / 72 + 0.05 if self.is_flat else self.width + 0.03

    def set_on(self, axis: Any) -> None:
        """Sets the ticks of a matplotlib axis."""
        ticks = range(0, len(self.labels), self.step)
        axis.set_ticks(ticks, [self.labels[n] for n in ticks], fontsize=self.font_size)
        if axis.axis_name == "x" and not self.is_flat:
            axis.set_tick_params(rotation=90)


def axis_labels(texts: Sequence[str], length: float, path: str | Path, max_columns: int = _MAX_COLUMNS) -> AxisLabels:
    """All labels where they fit, else every second, fifth, tenth …: they never overlap and are never too small.

    Characters are spelt as the file format needs it, and labels are cut after `max_columns` columns.
    """
    pitch = 72 * length / max(len(texts), 1)
    steps = (n * 10**power for power in range(12) for n in (1, 2, 5))
    step = next(n for n in steps if n * pitch >= MIN_FONT * 1.15 or n >= len(texts))
    font_size = min(max(step * pitch / 1.15, MIN_FONT), MAX_FONT - 1)
    spell = speller(path, texts)
    cut = [labels.shorten_middle(spell(text), max_columns) for text in texts]
    width = max(text_widths(cut[::step], font_size), default=0.0) + 0.06
    return AxisLabels(tuple(cut), length, step, font_size, width)


def axis_length(count: int, low: float = 0.5, high: float = 5.0) -> float:
    """Inches for `count` positions: a sixth each, between `low` and `high` in all."""
    return min(max(count / 6, low), high)


@contextlib.contextmanager
def open_canvas(
    path: str | Path, title: str, notes: Sequence[str], words: Iterable[str], width: float, height: float | None = None
) -> Iterator[Canvas]:
    """A canvas that is written to `path` at the end; without a height, the caller calls `resize` when it is known.

    A character that no installed font has is spelt [U+XXXX], and a note names the font to install.
    """
    path, words = Path(path), list(words)
    with figure_file(path, [title, *notes, *words], (width, height or 1.0)) as (figure, spell):
        # an SVG leaves the drawing of characters to the reader's fonts
        font_note = "" if path.suffix == ".svg" else fonts.missing_fonts_note([title, *notes, *words])
        figure.set_layout_engine("none")
        canvas = Canvas(figure, spell, title, [*notes, labels.unknown_note([title, *words]), font_note], width)
        if height is not None:
            canvas.resize(height)
        yield canvas
