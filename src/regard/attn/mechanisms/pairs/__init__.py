"""Pairs of texts: summaries of each by the other, and a reader with a memory."""
