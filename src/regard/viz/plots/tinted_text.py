"""Texts as a figure: tokens line by line, tinted by their weights."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.viz.plots.canvas import DIFFERENCES, MIN_FONT, WEIGHTS, Canvas, open_canvas
from regard.viz.plots.panels import FRAME_COLOUR
from regard.viz.text import labels

# inches of a line of text, from one line to the next, and for the name of a paragraph above its text; points of letters
_WIDTH, _PITCH, _NAME, _FONT = 6.5, 0.21, 0.17, 8.0


@dataclass(frozen=True, eq=False)
class TintedParagraph:
    """Tokens with their weights, below a name; frames stand around some. Signed weights have colours around zero."""

    name: str
    tokens: Sequence[str]
    weights: Tensor
    framed: Collection[int] = ()
    signed: bool = False


def draw_paragraphs(
    paragraphs: Sequence[TintedParagraph], path: str | Path, title: str, notes: Sequence[str] = ()
) -> Path:
    """Draws texts into a .png, .svg or .pdf: tokens from the right if most are written so, the brighter the greater
    their weights; the same input gives the same bytes."""
    words = [word for paragraph in paragraphs for word in (paragraph.name, *paragraph.tokens)]
    with open_canvas(path, title, notes, words, _WIDTH) as canvas:
        _write(canvas, paragraphs)
    return Path(path)


def _write(canvas: Canvas, paragraphs: Sequence[TintedParagraph]) -> None:
    canvas.resize(1.0)
    layouts = [_layout(canvas, paragraph) for paragraph in paragraphs]
    canvas.shrink(max((layout.width for layout in layouts), default=0.0))
    canvas.resize(sum(layout.height for layout in layouts))
    top = 0.0
    for paragraph, layout in zip(paragraphs, layouts, strict=True):
        if paragraph.name:
            canvas.write(paragraph.name, 0, top + _NAME - 0.05, MIN_FONT, va="baseline", color="#555555")
        _tint(canvas, paragraph, layout, top + (_NAME if paragraph.name else 0.0))
        top += layout.height


class _Layout(NamedTuple):
    """The texts of a paragraph, not yet at their places, with their widths and corners in inches."""

    texts: list[Any]
    widths: list[float]
    corners: list[tuple[float, float]]  # from the side on which lines begin
    height: float
    width: float
    from_right: bool


def _layout(canvas: Canvas, paragraph: TintedParagraph) -> _Layout:
    tokens = [labels.shorten(token, 60) for token in paragraph.tokens]
    texts = [canvas.write(token, 0, 0, _FONT, va="baseline") for token in tokens]
    widths = [text.get_window_extent().width / canvas.figure.dpi + 0.06 for text in texts]
    from_right = 2 * sum(map(labels.is_right_to_left, tokens)) > len(tokens)
    corners, end, line = [], 0.0, 0
    for width in widths:
        if end and end + width > canvas.width:
            end, line = 0.0, line + 1
        corners.append((end, line * _PITCH))
        end += width + 0.03
    height = (line + 1) * _PITCH + (_NAME if paragraph.name else 0.0)
    longest = max((start + width for (start, _), width in zip(corners, widths, strict=True)), default=0.0)
    return _Layout(texts, widths, corners, height, longest, from_right)


def _tint(canvas: Canvas, paragraph: TintedParagraph, layout: _Layout, first: float) -> None:
    """Puts texts at their corners below `first`, on rectangles in the colours of their weights."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    weights = paragraph.weights
    greatest = float(weights.abs().max()) if weights.numel() else 0.0
    for n, (text, width, (start, below)) in enumerate(zip(layout.texts, layout.widths, layout.corners, strict=True)):
        left, top = canvas.width - start - width if layout.from_right else start, first + below
        share = float(weights[n]) / greatest if greatest else 0.0
        tint = colormaps[DIFFERENCES]((1 + share) / 2) if paragraph.signed else colormaps[WEIGHTS](share)
        (x0, y1), (x1, y0) = canvas.figure_point(left, top), canvas.figure_point(left + width, top + 0.18)
        edge = {"edgecolor": FRAME_COLOUR, "linewidth": 1.2} if n in paragraph.framed else {"linewidth": 0.0}
        transform = canvas.figure.transFigure
        canvas.figure.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=tint, **edge, transform=transform))
        colour = "black" if _needs_black_text(tint) else "white"
        text.set(position=canvas.figure_point(left + 0.03, top + 0.13), color=colour, zorder=5)


def _needs_black_text(tint: Sequence[float]) -> bool:
    """Whether black contrasts more with the tint than white: WCAG 2's relative luminance is above 0.179."""
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in tint[:3])
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179
