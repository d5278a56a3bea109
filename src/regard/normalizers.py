"""Normalizers: how scores become weights."""

from regard.attn.terms.normalizer import *
