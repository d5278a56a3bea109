"""Encodings of positions that change states, queries or keys."""

from regard.attn.terms.position import *
from regard.attn.terms.rotary import *
from regard.attn.terms.rotary_scaling import *
