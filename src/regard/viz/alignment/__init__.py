"""Alignments of source and target as figure, page and text."""
