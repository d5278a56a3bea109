"""Pegasus and Blenderbot in transformers' layout: pre-norm Transformers with fixed, and with learned, positions."""

from dataclasses import replace

from regard.models.pretrained.architecture import Architecture
from regard.models.pretrained.translator_layout import (
    LAYERS,
    build_pre_norm,
    freeze_positions,
    pre_norm_aliases,
    pre_norm_config,
    pre_norm_maps,
)

_BLENDERBOT = Architecture(
    None, build_pre_norm, pre_norm_maps, pre_norm_config, aliases=pre_norm_aliases, layers=LAYERS
)
PRE_NORM_ARCHITECTURES = {
    "BlenderbotForConditionalGeneration": _BLENDERBOT,
    "PegasusForConditionalGeneration": replace(_BLENDERBOT, prepare=freeze_positions),
}
