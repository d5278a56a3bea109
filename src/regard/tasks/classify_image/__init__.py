"""The task classify-image."""
