"""The public names of this package and where each is defined."""

from .kv_cache import Segment as Segment
from .maps.attention_map import AttentionMap as AttentionMap
