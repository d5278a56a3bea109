"""The equation assembled."""
