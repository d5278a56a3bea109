"""The task caption."""
