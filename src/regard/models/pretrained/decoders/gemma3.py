"""Gemma3ForCausalLM in transformers' layout: local and global layers with a rotation each, and four norms."""

import math
from typing import Any

from regard.attn.heads.qk_norm import RMSQKNorm
from regard.attn.layer import Attention
from regard.models.decoders.gemma3 import PATTERN, Gemma3
from regard.models.pretrained.architecture import Architecture, activation_of, check_writable
from regard.models.pretrained.decoders.decoder_layout import (
    ATTENTION,
    BUFFERS,
    GATED_FEED,
    LAYERS,
    aliases,
    decoder_config,
    decoder_maps,
    decoder_sizes,
    first_layer,
    has_bias,
    qk_norm_maps,
    rename,
)
from regard.models.pretrained.decoders.rotary_entries import read_rotary, rotary_entries, write_rotary
from regard.models.pretrained.folder import CONFIG, CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap

_LOCAL, _GLOBAL = "sliding_attention", "full_attention"
_NORMS = {
    "input_layernorm": "around_attention.norm",
    "post_attention_layernorm": "around_attention.out_norm",
    "pre_feedforward_layernorm": "around_feed.norm",
    "post_feedforward_layernorm": "around_feed.out_norm",
}


def build(config: CheckpointConfig, names: frozenset[str]) -> Gemma3:
    """Folders of today have `rope_parameters` for both kinds of layers; older ones a base each, and `rope_scaling`."""
    config.refuse(use_bidirectional_attention=False, attn_logit_softcapping=None, final_logit_softcapping=None)
    sizes = decoder_sizes(config, head_dim=256)
    window = config.integer("sliding_window", 4096)
    both = config.values.get("rope_parameters")
    if isinstance(both, dict) and (_LOCAL in both or _GLOBAL in both):
        local, every = (_entries(config, both, kind) for kind in (_LOCAL, _GLOBAL))
    else:
        local = {"rope_theta": config.number("rope_local_base_freq", 10000.0)}
        every = {"rope_theta": config.number("rope_theta", 1e6), **rotary_entries(config)}
    return Gemma3(
        config.integer("vocab_size"),
        **sizes,
        windows=[window if kind == _LOCAL else None for kind in _layer_types(config, sizes["layers"])],
        rotate=read_rotary(config, sizes["head_dim"], entries=every, base=1e6),
        local_rotate=read_rotary(config, sizes["head_dim"], entries=local),
        scale=config.positive("query_pre_attn_scalar", 256.0) ** -0.5,
        bias=config.flag("attention_bias", False),
        tied=config.flag("tie_word_embeddings", True),
        activation=activation_of(config, "hidden_activation", "gelu_pytorch_tanh"),
        eps=config.epsilon("rms_norm_eps", 1e-6),
    )


def _entries(config: CheckpointConfig, both: dict[str, Any], kind: str) -> dict[str, Any]:
    entries = both.get(kind) or {}
    if not isinstance(entries, dict):
        raise ValueError(f"rope_parameters of {config.folder / CONFIG} must hold objects; correct the file")
    return entries


def _layer_types(config: CheckpointConfig, layers: int) -> list[str]:
    """The kind of every layer: named, or every sixth one global."""
    kinds = config.values.get("layer_types")
    if kinds is None:
        pattern = max(config.integer("sliding_window_pattern", PATTERN), 1)
        return [_LOCAL if (n + 1) % pattern else _GLOBAL for n in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in (_LOCAL, _GLOBAL) for kind in kinds):
        raise ValueError(
            f"layer_types of {config.folder / CONFIG} must be {_LOCAL!r} or {_GLOBAL!r} for each of {layers} layers; "
            "correct the file"
        )
    return kinds


def maps(model: Gemma3) -> list[TensorMap]:
    result = [*decoder_maps(model, {**ATTENTION, **GATED_FEED}), *qk_norm_maps(model)]
    result.append(TensorMap("model.norm.weight", ("stack.norm.gain",)))
    for n in range(len(model.stack.layers)):
        for theirs, ours in _NORMS.items():
            result.append(TensorMap(f"model.layers.{n}.{theirs}.weight", (f"stack.layers.{n}.{ours}.gain",)))
    return result


def config_of(model: Gemma3) -> dict[str, Any]:
    check_writable(model, (RMSQKNorm, Attention))
    layers: Any = model.stack.layers
    heads = [layer.attention for layer in layers]
    windows = [head.attention.mask for head in heads]
    rotations = {_LOCAL: None, _GLOBAL: None} | {
        _GLOBAL if mask is None else _LOCAL: write_rotary("Gemma3", head.rotate)["rope_parameters"]
        for head, mask in zip(heads, windows, strict=True)
    }
    config = decoder_config(model, "Gemma3ForCausalLM", "gemma3_text")
    config["hidden_activation"] = config.pop("hidden_act")
    sizes = sorted({mask.left + 1 for mask in windows if mask is not None})
    if len(sizes) > 1:
        raise ValueError(
            f"a Gemma3 with windows of {sizes} tokens cannot be saved in transformers' layout, which has one size for "
            f"all layers; build it with windows of {sizes[-1]}"
        )
    scale = heads[0].attention.score.scale_of(heads[0].head_dim)
    scalar = max(round(scale**-2), 1)
    if not math.isclose(scalar**-0.5, scale, rel_tol=1e-6):
        raise ValueError(
            f"a Gemma3 with scale={scale:g} cannot be saved in transformers' layout, which has 1/√n with whole numbers "
            f"n only; build it with scale={scalar} ** -0.5"
        )
    return {
        **config,
        "rope_parameters": {kind: entries for kind, entries in rotations.items() if entries is not None},
        "layer_types": [_GLOBAL if mask is None else _LOCAL for mask in windows],
        "sliding_window": sizes[0] if sizes else 4096,
        "query_pre_attn_scalar": scalar,
        "attention_bias": has_bias(first_layer(model).attention.query),
    }


GEMMA3_ARCHITECTURES = {
    "Gemma3ForCausalLM": Architecture("language-model", build, maps, config_of, rename, aliases, LAYERS, BUFFERS)
}
