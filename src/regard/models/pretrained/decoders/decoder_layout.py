"""Decoders of the Llama family in transformers' layout: what their classes share."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from regard.layers.transformer import EncoderLayer
from regard.models.decoders.causal_decoder import CausalDecoder
from regard.models.pretrained.architecture import activation_name, layer_sizes
from regard.models.pretrained.decoders.rotary_entries import write_rotary
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap

ATTENTION = {
    "self_attn.q_proj": ("attention.query",),
    "self_attn.k_proj": ("attention.key",),
    "self_attn.v_proj": ("attention.value",),
    "self_attn.o_proj": ("attention.out",),
}
GATED_FEED = {
    "mlp.gate_proj": ("feed.gate",),
    "mlp.up_proj": ("feed.inner",),
    "mlp.down_proj": ("feed.outer",),
}
NORMS = {"input_layernorm": ("around_attention.norm",), "post_attention_layernorm": ("around_feed.norm",)}
BUFFERS = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\..*"
LAYERS = {"model.layers": "num_hidden_layers"}


def joined_maps(
    names: Iterable[str], pairs: Mapping[str, Sequence[str]], theirs: str = "", ours: str = "", *, groups: int = 1
) -> Iterator[TensorMap]:
    """The weights, and the biases that the model has, of modules of theirs, each with one or several of ours."""
    present = set(names)
    for their_name, parts in pairs.items():
        for kind in ("weight", "bias"):
            if f"{ours}{parts[0]}.{kind}" in present:
                mine = tuple(f"{ours}{part}.{kind}" for part in parts)
                yield TensorMap(f"{theirs}{their_name}.{kind}", mine, groups=groups if len(parts) > 1 else 1)


def decoder_maps(model: CausalDecoder, layer: Mapping[str, Sequence[str]]) -> list[TensorMap]:
    """All tensors of a class with Llama's names; `layer` has those of a layer."""
    names = model.state_dict(keep_vars=True)
    outer = {"model.embed_tokens": ("embedding",), "model.norm": ("stack.norm",), "lm_head": ("output",)}
    if is_tied(model):
        del outer["lm_head"]
    result = [*joined_maps(names, outer)]
    for n in range(len(model.stack.layers)):
        result += joined_maps(names, layer, f"model.layers.{n}.", f"stack.layers.{n}.")
    return result


def qk_norm_maps(model: CausalDecoder) -> Iterator[TensorMap]:
    """The norms of queries and keys."""
    for n in range(len(model.stack.layers)):
        for theirs, ours in (("q_norm", "query_gain"), ("k_norm", "key_gain")):
            name = f"stack.layers.{n}.attention.qk_norm.{ours}"
            yield TensorMap(f"model.layers.{n}.self_attn.{theirs}.weight", (name,))


def is_tied(model: CausalDecoder) -> bool:
    return model.output.weight is model.embedding.weight


def aliases(model: CausalDecoder) -> dict[str, str]:
    return {"lm_head.weight": "model.embed_tokens.weight"} if is_tied(model) else {}


def rename(name: str) -> str:
    """With the prefix `model.`, which bare models do not have."""
    return f"model.{name}" if re.match(r"(embed_tokens|layers|norm)\.", name) else name


def decoder_sizes(config: CheckpointConfig, *, head_dim: int | None = None) -> dict[str, Any]:
    """The arguments that the constructors of Llama's kind share; `head_dim` is the default of the class."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    return {
        "width": width,
        "layers": config.integer("num_hidden_layers"),
        "heads": heads,
        "kv_heads": config.integer("num_key_value_heads", heads),
        "head_dim": config.integer("head_dim", width // max(heads, 1) if head_dim is None else head_dim),
        "feed": config.integer("intermediate_size"),
    }


def first_layer(model: CausalDecoder) -> Any:
    layer = model.stack.layers[0]
    assert isinstance(layer, EncoderLayer)
    return layer


def has_bias(linear: nn.Module) -> bool:
    """Whether a linear layer, of 32 or 8 bits, adds a bias."""
    return getattr(linear, "bias", None) is not None


def decoder_config(model: CausalDecoder, architecture: str, model_type: str) -> dict[str, Any]:
    """The entries of config.json that the classes of Llama's kind share."""
    layer = first_layer(model)
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": model.embedding.num_embeddings,
        "hidden_size": model.embedding.embedding_dim,
        "num_hidden_layers": len(model.stack.layers),
        **layer_sizes(layer),
        "num_key_value_heads": layer.attention.kv_heads,
        "head_dim": layer.attention.head_dim,
        "hidden_act": activation_name(layer.feed.activation),
        "rms_norm_eps": model.stack.norm.eps,
        **write_rotary(type(model).__name__, layer.attention.rotate),
        "tie_word_embeddings": is_tied(model),
    }
