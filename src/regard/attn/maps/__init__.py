"""Attention maps as values: computed when they are read, cut, pooled and indexed."""
