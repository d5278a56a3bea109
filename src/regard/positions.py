"""Encodings of positions that change states, queries or keys."""

from regard.attn.terms.position import *
