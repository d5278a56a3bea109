"""Whole systems beside regard, each in an environment of its own: see README.md."""
