"""Llama-like decoders in transformers' layout: LlamaForCausalLM, MistralForCausalLM and Qwen2ForCausalLM."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regard.layers.transformer import EncoderLayer
from regard.models.decoders.llama import Llama
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
    rename,
)
from regard.models.pretrained.decoders.rotary_entries import read_rotary
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap

# the window of a Mistral whose config.json has no entry
_WINDOW = 4096


def build(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    """A Llama has no window, whatever its config.json says; transformers does not read that entry either."""
    bias, feed_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    return _build(config, window=None, bias=bias, feed_bias=feed_bias)


def build_mistral(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    """A window of null is none; without the entry it is transformers' default."""
    has_window = config.values.get("sliding_window", _WINDOW) is not None
    window = config.integer("sliding_window", _WINDOW) if has_window else None
    return _build(config, window=window, bias=False, feed_bias=False)


def build_qwen2(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    """Queries, keys and values have a bias; that of the output of attention is zero."""
    config.refuse(use_sliding_window=False)
    return _build(config, window=None, bias=True, feed_bias=False)


def _build(config: CheckpointConfig, *, window: int | None, bias: bool, feed_bias: bool) -> Llama:
    sizes = decoder_sizes(config)
    return Llama(
        config.integer("vocab_size"),
        **sizes,
        window=window,
        rotate=read_rotary(config, sizes["head_dim"]),
        bias=bias,
        feed_bias=feed_bias,
        tied=config.flag("tie_word_embeddings", False),
        activation=activation_of(config, "hidden_act", "silu"),
        eps=config.epsilon("rms_norm_eps", 1e-6),
    )


def maps(model: Llama) -> list[TensorMap]:
    return decoder_maps(model, {**ATTENTION, **GATED_FEED, **NORMS})


def qwen2_maps(model: Llama) -> list[TensorMap]:
    return [tensor_map for tensor_map in maps(model) if not tensor_map.theirs.endswith("o_proj.bias")]


@torch.no_grad()
def without_out_bias(model: Llama) -> None:
    """Sets the bias of the output of attention, which Qwen2 does not have, to a constant zero."""
    for layer in model.stack.layers:
        assert isinstance(layer, EncoderLayer)
        assert isinstance(layer.attention.out, nn.Linear)
        layer.attention.out.bias.zero_().requires_grad_(False)


def config_of(model: Llama) -> dict[str, Any]:
    check_writable(model)
    layer, window = first_layer(model), model.stack.memory or None
    bias, feed_bias = has_bias(layer.attention.query), has_bias(layer.feed.outer)
    if window is None:
        config = decoder_config(model, "LlamaForCausalLM", "llama")
        return {**config, "attention_bias": bias, "mlp_bias": feed_bias}
    check_writable(model, bias=(False, bias), feed_bias=(False, feed_bias))
    return {**decoder_config(model, "MistralForCausalLM", "mistral"), "sliding_window": window}


_LLAMA = Architecture("language-model", build, maps, config_of, rename, aliases, LAYERS, BUFFERS)
LLAMA_ARCHITECTURES = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": replace(_LLAMA, build=build_mistral),
    # saved as a Llama, whose output of attention has a bias as well
    "Qwen2ForCausalLM": replace(_LLAMA, build=build_qwen2, maps=qwen2_maps, prepare=without_out_bias),
}
