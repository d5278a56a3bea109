"""Normalizers: how scores become weights."""

from regard.attn.terms.normalizer import *
from regard.attn.terms.talking_heads import TalkingWeights as TalkingWeights
