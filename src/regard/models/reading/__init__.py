"""Models that answer questions about passages."""
