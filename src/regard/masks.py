"""Masks: which keys each query may attend to."""

from regard.attn.terms.block_masks import *
from regard.attn.terms.edges import *
from regard.attn.terms.grid_masks import *
from regard.attn.terms.mask import *
from regard.attn.terms.sequence_masks import *
from regard.attn.terms.sparse_masks import *
