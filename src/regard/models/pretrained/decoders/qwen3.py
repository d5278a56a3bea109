"""Qwen3ForCausalLM in transformers' layout: Llama's names, and norms of queries and keys."""

from typing import Any

from regard.attn.heads.qk_norm import RMSQKNorm
from regard.models.decoders.qwen3 import Qwen3
from regard.models.pretrained.architecture import Architecture, activation_of, check_writable
from regard.models.pretrained.decoders.decoder_layout import (
    ATTENTION,
    BUFFERS,
    GATED_FEED,
    LAYERS,
    NORMS,
    aliases,
    decoder_config,
    decoder_maps,
    decoder_sizes,
    first_layer,
    has_bias,
    qk_norm_maps,
    rename,
)
from regard.models.pretrained.decoders.rotary_entries import read_rotary
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap


def build(config: CheckpointConfig, names: frozenset[str]) -> Qwen3:
    config.refuse(use_sliding_window=False)
    sizes = decoder_sizes(config, head_dim=128)
    return Qwen3(
        config.integer("vocab_size"),
        **sizes,
        rotate=read_rotary(config, sizes["head_dim"]),
        bias=config.flag("attention_bias", False),
        tied=config.flag("tie_word_embeddings", False),
        activation=activation_of(config, "hidden_act", "silu"),
        eps=config.epsilon("rms_norm_eps", 1e-6),
    )


def maps(model: Qwen3) -> list[TensorMap]:
    return [*decoder_maps(model, {**ATTENTION, **GATED_FEED, **NORMS}), *qk_norm_maps(model)]


def config_of(model: Qwen3) -> dict[str, Any]:
    check_writable(model, RMSQKNorm)
    bias = has_bias(first_layer(model).attention.query)
    return {**decoder_config(model, "Qwen3ForCausalLM", "qwen3"), "attention_bias": bias, "use_sliding_window": False}


QWEN3_ARCHITECTURES = {
    "Qwen3ForCausalLM": Architecture("language-model", build, maps, config_of, rename, aliases, LAYERS, BUFFERS)
}
