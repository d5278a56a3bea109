"""Labelled clips: sequences of pictures, and signals.  No torch here."""
