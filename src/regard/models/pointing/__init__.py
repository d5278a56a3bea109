"""Models whose attention is their output."""
