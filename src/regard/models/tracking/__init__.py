"""Models that track the state of a dialogue."""
