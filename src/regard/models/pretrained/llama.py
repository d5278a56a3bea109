"""Llama-like decoders in transformers' layout: LlamaForCausalLM and MistralForCausalLM."""

import re
from typing import Any

from torch import nn

from regard.attn.terms.position import Rotary
from regard.layers.transformer import EncoderLayer
from regard.models.llama import Llama
from regard.models.pretrained.architecture import (
    Architecture,
    activation_name,
    activation_of,
    check_writable,
    layer_sizes,
)
from regard.models.pretrained.folder import CONFIG, CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap, linear_maps


def build(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    window = config.values.get("sliding_window")
    return Llama(
        config.integer("vocab_size"),
        width=width,
        layers=config.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=config.integer("head_dim", width // max(heads, 1)),
        feed=config.integer("intermediate_size"),
        window=None if window is None else config.integer("sliding_window"),
        base=_rotary_base(config),
        bias=config.flag("attention_bias", False),
        feed_bias=config.flag("mlp_bias", False),
        tied=config.flag("tie_word_embeddings", False),
        activation=activation_of(config, "hidden_act", "silu"),
        eps=config.number("rms_norm_eps", 1e-6),
    )


def _rotary_base(config: CheckpointConfig) -> float:
    """The base of the angles; older configs have it as an entry of its own, beside the scaling of long texts."""
    parameters = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise ValueError(f"rope_parameters of {config.folder / CONFIG} must be an object; correct the file")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise ValueError(
            f"{config.folder / CONFIG} scales rotary positions by {kind!r}, and regard supports 'default' only; "
            "take another checkpoint"
        )
    values = {"rope_theta": config.values.get("rope_theta"), **parameters}
    return CheckpointConfig(config.folder, values).number("rope_theta", 10000.0)


def maps(model: Llama) -> list[TensorMap]:
    layer = model.stack.layers[0]
    assert isinstance(layer, EncoderLayer)
    has_bias, has_feed_bias = layer.attention.query.bias is not None, layer.feed.outer.bias is not None  # type: ignore[union-attr]
    result = [TensorMap("model.embed_tokens.weight", ("embedding.weight",))]
    result += linear_maps([("model.norm", "stack.norm")], bias=False)
    if model.output.weight is not model.embedding.weight:
        result += linear_maps([("lm_head", "output")], bias=False)
    for n in range(len(model.stack.layers)):
        theirs, ours = f"model.layers.{n}", f"stack.layers.{n}"
        attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
        feed = {"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}
        norms = {"input_layernorm": "around_attention", "post_attention_layernorm": "around_feed"}
        result += linear_maps([(f"{theirs}.{t}", f"{ours}.{o}.norm") for t, o in norms.items()], bias=False)
        pairs = [(f"{theirs}.self_attn.{t}", f"{ours}.attention.{o}") for t, o in attention.items()]
        result += linear_maps(pairs, bias=has_bias)
        result += linear_maps([(f"{theirs}.mlp.{t}", f"{ours}.feed.{o}") for t, o in feed.items()], bias=has_feed_bias)
    return result


def config_of(model: Llama) -> dict[str, Any]:
    check_writable(model)
    layer, norm = model.stack.layers[0], model.stack.norm
    assert isinstance(layer, EncoderLayer)
    assert isinstance(norm, nn.RMSNorm)
    assert isinstance(layer.attention.rotate, Rotary)
    window = model.stack.memory or None
    config = {
        "architectures": ["LlamaForCausalLM" if window is None else "MistralForCausalLM"],
        "model_type": "llama" if window is None else "mistral",
        "vocab_size": model.embedding.num_embeddings,
        "hidden_size": model.embedding.embedding_dim,
        "num_hidden_layers": len(model.stack.layers),
        **layer_sizes(layer),
        "num_key_value_heads": layer.attention.kv_heads,
        "head_dim": layer.attention.head_dim,
        "hidden_act": activation_name(layer.feed.activation),  # type: ignore[arg-type]
        "rms_norm_eps": norm.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": layer.attention.rotate.base},
        "tie_word_embeddings": model.output.weight is model.embedding.weight,
    }
    has_bias, has_feed_bias = layer.attention.query.bias is not None, layer.feed.outer.bias is not None  # type: ignore[union-attr]
    if window is None:
        return {**config, "attention_bias": has_bias, "mlp_bias": has_feed_bias}
    check_writable(model, bias=(False, has_bias), feed_bias=(False, has_feed_bias))
    return {**config, "sliding_window": window}


def _aliases(model: Llama) -> dict[str, str]:
    is_tied = model.output.weight is model.embedding.weight
    return {"lm_head.weight": "model.embed_tokens.weight"} if is_tied else {}


def rename(name: str) -> str:
    """With the prefix `model.`, which bare models do not have."""
    return f"model.{name}" if re.match(r"(embed_tokens|layers|norm)\.", name) else name


_LLAMA = Architecture(
    "language-model", build, maps, config_of, rename, _aliases, r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\..*"
)
LLAMA_ARCHITECTURES = {"LlamaForCausalLM": _LLAMA, "MistralForCausalLM": _LLAMA}
