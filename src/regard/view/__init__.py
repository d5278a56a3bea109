"""Eyes: what was attended to, as a picture, a page or text. Knows weights and labels, never a model."""

from regard.view.alignment import Alignment, draw
from regard.view.curve import curve, scatter
from regard.view.figure import Panel, figure
from regard.view.recording_figure import draw_recording

__all__ = ["Alignment", "Panel", "curve", "draw", "draw_recording", "figure", "scatter"]
