"""Models that repeat one layer, and the halting of their positions."""
