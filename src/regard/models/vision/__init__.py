"""Models that choose a part of an image."""
