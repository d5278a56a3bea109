"""Embedded clips: moving digits, and signals.  No torch here."""
