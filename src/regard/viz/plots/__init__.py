"""Figures: heat maps, curves, canvases, contours and grids of images."""
