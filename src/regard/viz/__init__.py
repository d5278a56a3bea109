"""Attention weights, alignments and recordings as figures, HTML pages and terminal text. Knows no model."""

from regard.viz.alignment import Alignment, draw
from regard.viz.plots.curve import curve, scatter
from regard.viz.plots.panels import Panel, figure
from regard.viz.recording.figures import draw_recording
from regard.viz.recording.figures.saliency import draw_saliency

__all__ = ["Alignment", "Panel", "curve", "draw", "draw_recording", "draw_saliency", "figure", "scatter"]
