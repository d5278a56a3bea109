"""Llama-like decoders in transformers' layout: LlamaForCausalLM, MistralForCausalLM and Qwen2ForCausalLM."""

import functools
import re
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regard.attn.terms.rotary import Rotary
from regard.attn.terms.rotary_scaling import Llama3Scaling, RotaryScaling
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

# the window of a Mistral whose config.json has no entry
_WINDOW = 4096


def build(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    """A Llama has no window, whatever its config.json says; transformers does not read that entry either."""
    bias, feed_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    return _build(config, window=None, bias=bias, feed_bias=feed_bias)


def build_mistral(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    """A window of null is none; without the entry it is transformers' default."""
    has_window = config.values.get("sliding_window", _WINDOW) is not None
    return _build(
        config, window=config.integer("sliding_window", _WINDOW) if has_window else None, bias=False, feed_bias=False
    )


def build_qwen2(config: CheckpointConfig, names: frozenset[str]) -> Llama:
    """Queries, keys and values have a bias; that of the output of attention is zero."""
    config.refuse(use_sliding_window=False)
    return _build(config, window=None, bias=True, feed_bias=False)


def _build(config: CheckpointConfig, *, window: int | None, bias: bool, feed_bias: bool) -> Llama:
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    base, scaling = _rotary(config)
    return Llama(
        config.integer("vocab_size"),
        width=width,
        layers=config.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=config.integer("head_dim", width // max(heads, 1)),
        feed=config.integer("intermediate_size"),
        window=window,
        base=base,
        scaling=scaling,
        bias=bias,
        feed_bias=feed_bias,
        tied=config.flag("tie_word_embeddings", False),
        activation=activation_of(config, "hidden_act", "silu"),
        eps=config.epsilon("rms_norm_eps", 1e-6),
    )


def _rotary(config: CheckpointConfig) -> tuple[float, RotaryScaling | None]:
    """The base of the angles and their scaling; older configs have the base as an entry of its own."""
    parameters = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise ValueError(f"rope_parameters of {config.folder / CONFIG} must be an object; correct the file")
    values = CheckpointConfig(config.folder, {"rope_theta": config.values.get("rope_theta"), **parameters})
    base = values.number("rope_theta", 10000.0)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind == "default":
        return base, None
    if kind != "llama3":
        raise ValueError(
            f"{config.folder / CONFIG} scales rotary positions by {kind!r}, and regard supports 'default' and 'llama3' "
            "only; take another checkpoint"
        )
    low, high = values.number("low_freq_factor"), values.number("high_freq_factor")
    original = values.integer("original_max_position_embeddings")
    return base, Llama3Scaling(values.number("factor"), low, high, original)


def maps(model: Llama, *, out_bias: bool = True) -> list[TensorMap]:
    """`out_bias`: whether a bias of queries, keys and values comes with one of the output of attention."""
    layer = model.stack.layers[0]
    assert isinstance(layer, EncoderLayer)
    has_bias, has_feed_bias = layer.attention.query.bias is not None, layer.feed.outer.bias is not None  # type: ignore[union-attr]
    result = [TensorMap("model.embed_tokens.weight", ("embedding.weight",))]
    result += linear_maps([("model.norm", "stack.norm")], bias=False)
    if model.output.weight is not model.embedding.weight:
        result += linear_maps([("lm_head", "output")], bias=False)
    for n in range(len(model.stack.layers)):
        theirs, ours = f"model.layers.{n}", f"stack.layers.{n}"
        attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
        feed = {"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}
        norms = {"input_layernorm": "around_attention", "post_attention_layernorm": "around_feed"}
        result += linear_maps([(f"{theirs}.{t}", f"{ours}.{o}.norm") for t, o in norms.items()], bias=False)
        pairs = [(f"{theirs}.self_attn.{t}", f"{ours}.attention.{o}") for t, o in attention.items()]
        result += linear_maps(pairs, bias=has_bias)
        out = (f"{theirs}.self_attn.o_proj", f"{ours}.attention.out")
        result += linear_maps([out], bias=has_bias and out_bias)
        result += linear_maps([(f"{theirs}.mlp.{t}", f"{ours}.feed.{o}") for t, o in feed.items()], bias=has_feed_bias)
    return result


@torch.no_grad()
def without_out_bias(model: Llama) -> None:
    """Sets the bias of the output of attention, which Qwen2 does not have, to a constant zero."""
    for layer in model.stack.layers:
        assert isinstance(layer, EncoderLayer)
        assert isinstance(layer.attention.out, nn.Linear)
        layer.attention.out.bias.zero_().requires_grad_(False)


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
        "rope_parameters": _rope_parameters(layer.attention.rotate),
        "tie_word_embeddings": model.output.weight is model.embedding.weight,
    }
    has_bias, has_feed_bias = layer.attention.query.bias is not None, layer.feed.outer.bias is not None  # type: ignore[union-attr]
    if window is None:
        return {**config, "attention_bias": has_bias, "mlp_bias": has_feed_bias}
    check_writable(model, bias=(False, has_bias), feed_bias=(False, has_feed_bias))
    return {**config, "sliding_window": window}


def _rope_parameters(rotary: Rotary) -> dict[str, Any]:
    if not isinstance(rotary.scaling, Llama3Scaling):
        return {"rope_type": "default", "rope_theta": rotary.base}
    return {
        "rope_type": "llama3",
        "rope_theta": rotary.base,
        "factor": rotary.scaling.factor,
        "low_freq_factor": rotary.scaling.low,
        "high_freq_factor": rotary.scaling.high,
        "original_max_position_embeddings": rotary.scaling.original,
    }


def _aliases(model: Llama) -> dict[str, str]:
    is_tied = model.output.weight is model.embedding.weight
    return {"lm_head.weight": "model.embed_tokens.weight"} if is_tied else {}


def rename(name: str) -> str:
    """With the prefix `model.`, which bare models do not have."""
    return f"model.{name}" if re.match(r"(embed_tokens|layers|norm)\.", name) else name


_BUFFERS = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\..*"
_LAYERS = {"model.layers": "num_hidden_layers"}
_LLAMA = Architecture("language-model", build, maps, config_of, rename, _aliases, _LAYERS, _BUFFERS)
LLAMA_ARCHITECTURES = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": replace(_LLAMA, build=build_mistral),
    # saved as a Llama, whose output of attention has a bias as well
    "Qwen2ForCausalLM": Architecture(
        "language-model",
        build_qwen2,
        functools.partial(maps, out_bias=False),
        config_of,
        rename,
        _aliases,
        _LAYERS,
        _BUFFERS,
        prepare=without_out_bias,
    ),
}
