"""The task generate-image."""
