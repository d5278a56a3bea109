"""The task classify-clip."""
