"""Text in a figure: how wide it is drawn, and how it is broken into lines."""

import math
from collections.abc import Sequence

from regard.viz.plots.figure_file import DPI, fonts_for
from regard.viz.text import labels

# no font draws more columns per inch
_COLUMNS_PER_INCH = 40


def text_widths(texts: Sequence[str], font_size: float, weight: str = "normal") -> list[float]:
    """The width in inches of each text as it is drawn."""
    from matplotlib.figure import Figure

    with fonts_for(texts):
        scratch = Figure(dpi=DPI).text(0, 0, "", fontsize=font_size, weight=weight)
        widths = {}
        for text in dict.fromkeys(texts):
            scratch.set_text(text)
            widths[text] = float(scratch.get_window_extent().width) / DPI if text else 0.0
    return [widths[text] for text in texts]


def wrap(
    text: str, width: float, font_size: float, weight: str = "normal", *, max_lines: int | None = None
) -> list[str]:
    """The text in lines of at most `width` inches, broken between words, or inside a word that is wider than a line.

    Of more than `max_lines` lines the last one ends with an ellipsis.
    """
    if max_lines is not None:
        # text that cannot fit need not be measured
        text = labels.shorten(text, int(max_lines * width * _COLUMNS_PER_INCH))
    words = text.split(" ")
    spaced, unspaced, *widths = text_widths(["n n", "nn", *words], font_size, weight)
    space = spaced - unspaced
    lines: list[str] = []
    end = math.inf  # end of the last line; the first word begins a line
    for word, word_width in zip(words, widths, strict=True):
        parts = [word] if word_width <= width else labels.graphemes(word)
        part_widths = [word_width] if word_width <= width else text_widths(parts, font_size, weight)
        gap, blank = space, " "
        for part, part_width in zip(parts, part_widths, strict=True):
            if end + gap + part_width > width:
                lines.append(part)
                end = part_width
            else:
                lines[-1] += blank + part
                end += gap + part_width
            gap, blank = 0.0, ""
    if max_lines is not None and len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], lines[max_lines - 1][:-1] + "…"]
    return lines
