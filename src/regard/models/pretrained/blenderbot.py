"""Blenderbot in transformers' layout, BlenderbotForConditionalGeneration: a pre-norm Transformer, learned positions."""

from typing import Any

from regard.models.pretrained.architecture import Architecture
from regard.models.pretrained.translator_layout import (
    LAYERS,
    build_pre_norm,
    pre_norm_aliases,
    pre_norm_config,
    pre_norm_maps,
)
from regard.models.transformer import Transformer


def config_of(model: Transformer) -> dict[str, Any]:
    named = {"architectures": ["BlenderbotForConditionalGeneration"], "model_type": "blenderbot"}
    return {**named, **pre_norm_config(model)}


BLENDERBOT_ARCHITECTURES = {
    "BlenderbotForConditionalGeneration": Architecture(
        None, build_pre_norm, pre_norm_maps, config_of, aliases=pre_norm_aliases, layers=LAYERS
    )
}
