"""The task classify-text."""
