"""Attention weights, alignments and recordings as figures, HTML pages and terminal text. Knows no model."""

from regard.viz.alignment.alignment import Alignment, draw
from regard.viz.plots.curve import curve, scatter
from regard.viz.plots.heatmap import Panel, figure
from regard.viz.recording.figures import draw_recording

__all__ = ["Alignment", "Panel", "curve", "draw", "draw_recording", "figure", "scatter"]
