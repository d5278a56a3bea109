"""A picture, and its patches in the colours of their scores, once per method."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from regard.viz.plots.canvas import Scale
from regard.viz.recording.figures.picture_panels import draw_picture_panels


def draw_picture_attributions(
    image: Tensor, scores: Mapping[str, Tensor], path: Path, title: str
) -> Path:  # "h w 3" from 0 to 1, "rows columns" each
    """Panels of the picture and of every method, each scaled to its greatest score, with the picture's contours."""
    shares = [(name, cells / cells.abs().max().clamp_min(1e-30)) for name, cells in scores.items()]
    scale = Scale(1.0, -1.0, name="share of the greatest score")
    note = "orange adds to the logit, violet takes away; lines: the contours of the picture"
    return draw_picture_panels(image, shares, path, title, note, scale)
