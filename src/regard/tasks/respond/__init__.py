"""The task respond."""
