"""Questions about passages."""
