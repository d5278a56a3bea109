"""Phi3ForCausalLM in transformers' layout: Llama's names, with the projections of queries, keys and values joined."""

from dataclasses import replace
from typing import Any

from regard.models.decoders.phi3 import Phi3
from regard.models.pretrained.architecture import Architecture, activation_of, check_writable
from regard.models.pretrained.decoders.decoder_layout import (
    BUFFERS,
    LAYERS,
    NORMS,
    aliases,
    decoder_config,
    decoder_maps,
    decoder_sizes,
    rename,
)
from regard.models.pretrained.decoders.rotary_entries import read_rotary, rotary_entries
from regard.models.pretrained.folder import CONFIG, CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap

# lengths of a config.json without them
_DEFAULTS = {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096}
_JOINED = {
    "self_attn.qkv_proj": ("attention.query", "attention.key", "attention.value"),
    "self_attn.o_proj": ("attention.out",),
    "mlp.gate_up_proj": ("feed.gate", "feed.inner"),
    "mlp.down_proj": ("feed.outer",),
}


def build(config: CheckpointConfig, names: frozenset[str]) -> Phi3:
    sizes, window = decoder_sizes(config), config.values.get("sliding_window")
    present = {key: value for key, value in config.values.items() if value is not None}
    config = replace(config, values={**_DEFAULTS, **present})
    entries = dict(rotary_entries(config))
    kind = entries.get("rope_type", entries.get("type", "default"))
    if kind not in ("default", "longrope", "su", "yarn"):
        raise ValueError(
            f"{config.folder / CONFIG} scales rotary positions by {kind!r}, and a Phi-3 has default and longrope only; "
            "take another checkpoint"
        )
    if kind != "default":  # names of LongRoPE in early folders
        entries["rope_type"] = "longrope"
    return Phi3(
        config.integer("vocab_size"),
        **sizes,
        window=None if window is None else config.integer("sliding_window"),
        rotate=read_rotary(config, sizes["head_dim"], entries=entries, share=1.0),
        tied=config.flag("tie_word_embeddings", False),
        activation=activation_of(config, "hidden_act", "silu"),
        eps=config.epsilon("rms_norm_eps", 1e-5),
        dropout=config.number("resid_pdrop", 0.0),
    )


def maps(model: Phi3) -> list[TensorMap]:
    return decoder_maps(model, {**_JOINED, **NORMS})


def config_of(model: Phi3) -> dict[str, Any]:
    check_writable(model)
    return {
        **decoder_config(model, "Phi3ForCausalLM", "phi3"),
        "sliding_window": model.stack.memory or None,
        "resid_pdrop": model.dropout.p,
        "embd_pdrop": model.dropout.p,
        "pad_token_id": None,  # its default in transformers is a row of a vocabulary of 32,064
    }


PHI3_ARCHITECTURES = {
    "Phi3ForCausalLM": Architecture("language-model", build, maps, config_of, rename, aliases, LAYERS, BUFFERS)
}
