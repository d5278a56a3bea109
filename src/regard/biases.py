"""Biases: numbers that are added to the scores, from positions and queries."""

from regard.attn.terms.bias import *
from regard.attn.terms.score_bias import *
