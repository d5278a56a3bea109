"""Losses that attention needs beside those of torch."""

from regard.losses.reinforce import Baseline, reinforce

__all__ = ["Baseline", "reinforce"]
