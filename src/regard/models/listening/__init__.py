"""Models that turn frames of sound into text."""
