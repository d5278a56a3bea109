"""GPTNeoXForCausalLM in transformers' layout: queries, keys and values of each head are joined."""

import re
from typing import Any

from regard.models.decoders.gpt_neox import GPTNeoX
from regard.models.pretrained.architecture import (
    Architecture,
    activation_name,
    activation_of,
    check_writable,
    layer_sizes,
)
from regard.models.pretrained.decoders.decoder_layout import first_layer, has_bias, is_tied, joined_maps
from regard.models.pretrained.decoders.rotary_entries import read_rotary, rotary_entries, write_rotary
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap

_LAYER = {
    "attention.query_key_value": ("attention.query", "attention.key", "attention.value"),
    "attention.dense": ("attention.out",),
    "mlp.dense_h_to_4h": ("feed.inner",),
    "mlp.dense_4h_to_h": ("feed.outer",),
    "input_layernorm": ("around_attention.norm",),
    "post_attention_layernorm": ("around_feed.norm",),
}


def build(config: CheckpointConfig, names: frozenset[str]) -> GPTNeoX:
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    base, share = config.number("rotary_emb_base", 10000.0), config.number("rotary_pct", 0.25)
    return GPTNeoX(
        config.integer("vocab_size"),
        width=width,
        layers=config.integer("num_hidden_layers"),
        heads=heads,
        feed=config.integer("intermediate_size"),
        rotate=read_rotary(config, width // max(heads, 1), entries=rotary_entries(config), base=base, share=share),
        residual="parallel" if config.flag("use_parallel_residual", True) else "pre",
        bias=config.flag("attention_bias", True),
        tied=config.flag("tie_word_embeddings", False),
        activation=activation_of(config, "hidden_act", "gelu"),
        eps=config.epsilon("layer_norm_eps", 1e-5),
        dropout=config.number("hidden_dropout", 0.0),
    )


def maps(model: GPTNeoX) -> list[TensorMap]:
    names, heads = model.state_dict(keep_vars=True), first_layer(model).attention.heads
    outer = {"gpt_neox.embed_in": ("embedding",), "gpt_neox.final_layer_norm": ("stack.norm",)}
    result = [*joined_maps(names, outer if is_tied(model) else {**outer, "lm_head": ("output",)})]
    for n in range(len(model.stack.layers)):
        result += joined_maps(names, _LAYER, f"gpt_neox.layers.{n}.", f"stack.layers.{n}.", groups=heads)
    return result


def config_of(model: GPTNeoX) -> dict[str, Any]:
    check_writable(model)
    layer, norm = first_layer(model), model.stack.norm
    rotary = write_rotary("GPTNeoX", layer.attention.rotate)
    rotary["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": model.embedding.num_embeddings,
        "hidden_size": model.embedding.embedding_dim,
        "num_hidden_layers": len(model.stack.layers),
        **layer_sizes(layer),
        "hidden_act": activation_name(layer.feed.activation),
        "layer_norm_eps": norm.eps,
        **rotary,
        "use_parallel_residual": layer.residual == "parallel",
        "attention_bias": has_bias(layer.attention.query),
        "hidden_dropout": model.dropout.p,
        "tie_word_embeddings": is_tied(model),
    }


def rename(name: str) -> str:
    """The names of today, with the prefix `gpt_neox.`, which bare models do not have."""
    name = re.sub(r"^embed_out\.", "lm_head.", name)
    return f"gpt_neox.{name}" if re.match(r"(embed_in|layers|final_layer_norm)\.", name) else name


def _aliases(model: GPTNeoX) -> dict[str, str]:
    return {"lm_head.weight": "gpt_neox.embed_in.weight"} if is_tied(model) else {}


GPT_NEOX_ARCHITECTURES = {
    "GPTNeoXForCausalLM": Architecture(
        "language-model",
        build,
        maps,
        config_of,
        rename,
        _aliases,
        {"gpt_neox.layers": "num_hidden_layers"},
        r"gpt_neox\.(layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)|rotary_emb\..*)",
    )
}
