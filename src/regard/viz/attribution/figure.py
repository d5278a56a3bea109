"""A text tinted by its scores, once per method."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from regard.viz.plots.canvas import open_canvas
from regard.viz.recording.figures.text import TintedParagraph, write_paragraphs

_WIDTH = 6.5


def draw_attributions(
    tokens: Sequence[str], scores: Mapping[str, Tensor], path: Path, title: str, notes: Sequence[str] = ()
) -> Path:  # "n" each
    """The tokens below the name of each method: orange for scores above zero, violet below."""
    paragraphs = [TintedParagraph(name, tokens, each, signed=True) for name, each in scores.items()]
    about = [
        *notes,
        "orange adds to the logit, violet takes away; the strongest tint is the greatest score of each method",
    ]
    with open_canvas(path, title, about, [*tokens, *scores], _WIDTH) as canvas:
        write_paragraphs(canvas, paragraphs)
    return path
