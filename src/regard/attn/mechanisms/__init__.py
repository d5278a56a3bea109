"""Attention mechanisms built on the equation, one per file."""
