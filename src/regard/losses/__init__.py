"""Losses for attention models beside those of torch."""

from regard.losses.adaptive_softmax import AdaptiveSoftmax
from regard.losses.doubly_stochastic import doubly_stochastic
from regard.losses.frobenius_penalty import frobenius_penalty
from regard.losses.hinge import hinge
from regard.losses.info_nce import info_nce
from regard.losses.linear_cross_entropy import linear_cross_entropy
from regard.losses.reinforce import Baseline, reinforce

__all__ = [
    "AdaptiveSoftmax",
    "Baseline",
    "doubly_stochastic",
    "frobenius_penalty",
    "hinge",
    "info_nce",
    "linear_cross_entropy",
    "reinforce",
]
