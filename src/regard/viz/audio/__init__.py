"""Attention over sound."""
