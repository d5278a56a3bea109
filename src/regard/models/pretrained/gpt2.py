"""GPT-2 in transformers' layout: GPT2LMHeadModel and GPT2Model, whose linears are (in, out) and join q, k and v."""

import re
from typing import Any

from torch import nn

from regard.layers.transformer import EncoderLayer
from regard.models.gpt2 import GPT2
from regard.models.pretrained.architecture import (
    Architecture,
    activation_name,
    activation_of,
    check_writable,
    layer_sizes,
)
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap, linear_maps


def rename(name: str) -> str:
    """With the prefix `transformer.`, which bare models do not have."""
    return f"transformer.{name}" if re.match(r"(wte|wpe|h|ln_f)\.", name) else name


def build(config: CheckpointConfig, names: frozenset[str]) -> GPT2:
    config.refuse(scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, add_cross_attention=False)
    width = config.integer("n_embd")
    return GPT2(
        config.integer("vocab_size"),
        width=width,
        layers=config.integer("n_layer"),
        heads=config.integer("n_head"),
        feed=config.integer("n_inner", 4 * width),
        longest=config.integer("n_positions"),
        activation=activation_of(config, "activation_function", "gelu_new"),
        eps=config.epsilon("layer_norm_epsilon", 1e-5),
        dropout=config.number("resid_pdrop", 0.1),
    )


def maps(model: GPT2) -> list[TensorMap]:
    result = [
        TensorMap("transformer.wte.weight", ("embedding.weight",)),
        TensorMap("transformer.wpe.weight", ("place.table.weight",)),
        *linear_maps([("transformer.ln_f", "stack.norm")]),
    ]
    for n in range(len(model.stack.layers)):
        theirs, ours = f"transformer.h.{n}", f"stack.layers.{n}"
        norms = [(f"{theirs}.ln_1", f"{ours}.around_attention.norm"), (f"{theirs}.ln_2", f"{ours}.around_feed.norm")]
        result += linear_maps(norms)
        linears = {
            "attn.c_attn": ("attention.query", "attention.key", "attention.value"),
            "attn.c_proj": ("attention.out",),
            "mlp.c_fc": ("feed.inner",),
            "mlp.c_proj": ("feed.outer",),
        }
        for name, parts in linears.items():
            for part in ("weight", "bias"):
                joined = tuple(f"{ours}.{linear}.{part}" for linear in parts)
                result.append(TensorMap(f"{theirs}.{name}.{part}", joined, transposed=part == "weight"))
    return result


def config_of(model: GPT2) -> dict[str, Any]:
    check_writable(model, positions=("learned", model.positions.name), memory=(0, model.stack.memory))
    layer, norm = model.stack.layers[0], model.stack.norm
    assert isinstance(layer, EncoderLayer)
    assert isinstance(norm, nn.LayerNorm)
    sizes = layer_sizes(layer)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.embedding.num_embeddings,
        "n_embd": model.embedding.embedding_dim,
        "n_layer": len(model.stack.layers),
        "n_head": sizes["num_attention_heads"],
        "n_inner": sizes["intermediate_size"],
        "n_positions": model.positions.longest,
        "activation_function": activation_name(layer.feed.activation),  # type: ignore[arg-type]
        "layer_norm_epsilon": norm.eps,
        "resid_pdrop": model.dropout.p,
        "embd_pdrop": model.dropout.p,
        "tie_word_embeddings": True,
    }


def _aliases(model: GPT2) -> dict[str, str]:
    return {"lm_head.weight": "transformer.wte.weight"}


_GPT2 = Architecture(
    "language-model",
    build,
    maps,
    config_of,
    rename,
    _aliases,
    {"transformer.h": "n_layer"},
    r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)
GPT2_ARCHITECTURES = {"GPT2LMHeadModel": _GPT2, "GPT2Model": _GPT2}
