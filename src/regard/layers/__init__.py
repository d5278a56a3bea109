"""Layers of attention, and parts of models: recurrent encoders and decoders, Transformer layers, query pooling."""

from regard.attn import catalogue
from regard.attn.catalogue import *
from regard.attn.mechanisms.monotonic import ExpectedStop, FirstStop, StopRule
from regard.attn.mechanisms.retina import Retina
from regard.common.tag_schemes import TaggedSpan, TagScheme
from regard.layers.crf import CRF, Constraints, TagPath

__all__ = [
    "CRF",
    "Constraints",
    "ExpectedStop",
    "FirstStop",
    "Retina",
    "StopRule",
    "TagPath",
    "TagScheme",
    "TaggedSpan",
]
__all__ += catalogue.__all__
