"""The task glimpse."""
