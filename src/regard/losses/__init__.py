"""Losses that attention needs beside those of torch."""

from regard.losses.doubly_stochastic import doubly_stochastic
from regard.losses.hinge import hinge
from regard.losses.linear_cross_entropy import likelihood
from regard.losses.reinforce import Baseline, reinforce

__all__ = ["Baseline", "doubly_stochastic", "hinge", "likelihood", "reinforce"]
