"""Eyes: what was attended to, as a picture. Knows weights and labels, never a model."""

from regard.view.figure import Panel, figure

__all__ = ["Panel", "figure"]
