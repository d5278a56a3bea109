"""Models that write the next turn of a dialogue."""
