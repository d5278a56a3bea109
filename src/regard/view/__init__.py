"""Eyes: what was attended to, as a picture, a page or text. Knows weights and labels, never a model."""

from regard.view.alignment import Alignment, draw
from regard.view.curve import curve, scatter
from regard.view.figure import Panel, figure

__all__ = ["Alignment", "Panel", "curve", "draw", "figure", "scatter"]
