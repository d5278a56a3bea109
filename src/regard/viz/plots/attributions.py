"""Attributions as figures: a text or the patches of a picture, tinted by their scores, once per method."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from regard.viz.plots.canvas import Scale
from regard.viz.plots.picture_panels import draw_picture_panels
from regard.viz.plots.tinted_text import TintedParagraph, draw_paragraphs

_SIGNS = "orange adds to the logit, violet takes away"


def draw_attributions(tokens: Sequence[str], scores: Mapping[str, Tensor], path: Path, title: str) -> Path:  # "n" each
    """The tokens below the name of each method: orange for scores above zero, violet below."""
    paragraphs = [TintedParagraph(name, tokens, each, signed=True) for name, each in scores.items()]
    return draw_paragraphs(
        paragraphs, path, title, [f"{_SIGNS}; the strongest tint is the greatest score of each method"]
    )


def draw_picture_attributions(
    image: Tensor, scores: Mapping[str, Tensor], path: Path, title: str
) -> Path:  # "h w 3" from 0 to 1, "rows columns" each
    """Panels of the picture and of every method, each scaled to its greatest score, with the picture's contours."""
    shares = [(name, cells / cells.abs().max().clamp_min(1e-30)) for name, cells in scores.items()]
    scale = Scale(1.0, -1.0, name="share of the greatest score")
    return draw_picture_panels(image, shares, path, title, f"{_SIGNS}; lines: the contours of the picture", scale)
