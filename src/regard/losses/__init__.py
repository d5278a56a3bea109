"""Losses that attention needs beside those of torch."""

from regard.losses.reinforce import Baseline, reinforce
from regard.losses.vocabulary import likelihood

__all__ = ["Baseline", "likelihood", "reinforce"]
