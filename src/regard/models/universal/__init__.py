"""Models that repeat one layer."""
