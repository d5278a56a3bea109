"""Models that compare two texts or more, one per file."""
