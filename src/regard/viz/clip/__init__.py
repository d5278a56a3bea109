"""Clips and signals with the attention over them."""
