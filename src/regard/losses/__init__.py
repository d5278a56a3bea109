"""Losses that attention needs beside those of torch."""

from regard.losses.doubly import doubly_stochastic
from regard.losses.hinge import hinge
from regard.losses.reinforce import Baseline, reinforce
from regard.losses.vocabulary import likelihood

__all__ = ["Baseline", "doubly_stochastic", "hinge", "likelihood", "reinforce"]
