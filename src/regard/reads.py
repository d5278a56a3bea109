"""Reads: how weights take values."""

from regard.attn.terms.read import *
