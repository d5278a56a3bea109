"""Losses for attention models beside those of torch."""

from regard.losses.functional import doubly_stochastic, frobenius_penalty, hinge, info_nce
from regard.losses.policy_gradient import Baseline, reinforce
from regard.losses.vocabulary import AdaptiveSoftmax, linear_cross_entropy

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
