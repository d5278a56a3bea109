"""Attacks on texts: searches for edits of a text that a model gets wrong."""
