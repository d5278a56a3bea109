"""Tiny checkpoints with random weights, made by transformers, of every architecture that regard loads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

V = 23
_SIZES = {"vocab_size": V, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}


def bert(kind: str, **choices: Any) -> nn.Module:
    config = transformers.BertConfig(**{**_SIZES, "max_position_embeddings": 13, "num_labels": 5, **choices})
    return getattr(transformers, kind)(config)


def gpt2(kind: str = "GPT2LMHeadModel", **choices: Any) -> nn.Module:
    sizes = {"vocab_size": V, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    return getattr(transformers, kind)(transformers.GPT2Config(**{**sizes, **ends, **choices}))


def marian(**choices: Any) -> nn.Module:
    sizes = {
        "vocab_size": V,
        "d_model": 12,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 10,
        "decoder_ffn_dim": 10,
        "max_position_embeddings": 40,
        "activation_function": "swish",
        "scale_embedding": True,
    }
    tokens = {
        "pad_token_id": V - 1,
        "decoder_start_token_id": V - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
    }
    return transformers.MarianMTModel(transformers.MarianConfig(**{**sizes, **tokens, **choices}))


def pre_norm(kind: str, **choices: Any) -> nn.Module:
    """A translator of Pegasus or Blenderbot, of the sizes of Marian's."""
    config = marian().config.to_dict()
    kept = {key: config[key] for key in config if key.startswith(("encoder_", "decoder_", "d_model", "max_pos"))}
    made = getattr(transformers, kind.replace("ForConditionalGeneration", "Config"))(
        **{**kept, "vocab_size": V, "activation_function": "relu", "scale_embedding": True, **choices}
    )
    return getattr(transformers, kind)(made)


def vit(kind: str, **choices: Any) -> nn.Module:
    sizes = {name: size for name, size in _SIZES.items() if name != "vocab_size"}
    shape = {"image_size": 6, "patch_size": 3, "num_channels": 2, "num_labels": 5}
    return getattr(transformers, kind)(transformers.ViTConfig(**{**sizes, **shape, **choices}))


def llama(kind: str = "LlamaForCausalLM", **choices: Any) -> nn.Module:
    config = getattr(transformers, kind.replace("ForCausalLM", "Config"))
    sizes = {**_SIZES, "num_key_value_heads": 1, "max_position_embeddings": 40, "head_dim": 6}
    return getattr(transformers, kind)(config(**{**sizes, **choices}))


def phi3(**choices: Any) -> nn.Module:
    """Heads of 8 channels, of which 4 are rotated."""
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "hidden_size": 24}
    return llama("Phi3ForCausalLM", **{**tokens, "head_dim": 8, "rope_parameters": rope, **choices})


LONGROPE = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "short_factor": [1.0, 1.5],
        "long_factor": [1.0, 4.0],
        "partial_rotary_factor": 0.5,
    }
}


def gemma3(**choices: Any) -> nn.Module:
    sizes = {"num_hidden_layers": 3, "sliding_window": 4, "query_pre_attn_scalar": 5, "num_key_value_heads": 1}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "head_dim": 6}
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    config = transformers.Gemma3TextConfig(**{**_SIZES, **sizes, **tokens, "layer_types": kinds, **choices})
    return transformers.Gemma3ForCausalLM(config)


def gpt_neox(**choices: Any) -> nn.Module:
    """Heads of 8 channels, of which 2 are rotated."""
    sizes = {**_SIZES, "hidden_size": 24, "max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**{**sizes, **choices}))


def scaled(kind: str, *, longest: int = 40, head_dim: int = 10, **entries: Any) -> dict[str, Any]:
    """Options of a config with scaled rotary positions."""
    parameters = {"rope_type": kind, "rope_theta": 100.0, **entries}
    return {"max_position_embeddings": longest, "head_dim": head_dim, "rope_parameters": parameters}


_SHORT, _LONG = [1.0, 1.1, 1.2, 1.4, 1.8], [1.0, 1.5, 2.0, 3.0, 4.0]
SCALED: dict[str, dict[str, Any]] = {
    "llama3": scaled(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=12
    ),
    "linear": scaled("linear", factor=3.0),
    "dynamic": scaled("dynamic", factor=3.0, longest=30),
    "dynamic, beyond": scaled("dynamic", factor=3.0, longest=5),
    "yarn": scaled("yarn", factor=4.0, original_max_position_embeddings=10, beta_fast=2.0, beta_slow=0.5),
    "yarn, mscale": scaled("yarn", factor=4.0, original_max_position_embeddings=10, mscale=2.0, mscale_all_dim=0.5),
    "longrope": scaled("longrope", short_factor=_SHORT, long_factor=_LONG, original_max_position_embeddings=20),
    "longrope, beyond": scaled("longrope", short_factor=_SHORT, long_factor=_LONG, original_max_position_embeddings=5),
    "proportional": scaled("proportional", partial_rotary_factor=0.4, factor=2.0),
}


MODELS: dict[str, Callable[[], nn.Module]] = {
    "BertModel": lambda: bert("BertModel"),
    "BertModel without pooler": lambda: bert_without_pooler(),
    "BertForMaskedLM": lambda: bert("BertForMaskedLM"),
    "BertForPreTraining": lambda: bert("BertForPreTraining", hidden_act="gelu_new"),
    "BertForSequenceClassification": lambda: bert("BertForSequenceClassification", hidden_act="relu"),
    "GPT2LMHeadModel": gpt2,
    "GPT2LMHeadModel, n_inner": lambda: gpt2(n_inner=7, activation_function="gelu"),
    "GPT2Model": lambda: gpt2("GPT2Model"),
    "MarianMTModel": marian,
    "MarianMTModel, two vocabularies": lambda: marian(
        share_encoder_decoder_embeddings=False, decoder_vocab_size=19, pad_token_id=18, decoder_start_token_id=18
    ),
    "MarianMTModel, no scale": lambda: marian(scale_embedding=False),
    "MarianMTModel, three tables": lambda: marian(
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=19,
        pad_token_id=18,
        decoder_start_token_id=18,
        tie_word_embeddings=False,
    ),
    "PegasusForConditionalGeneration": lambda: pre_norm("PegasusForConditionalGeneration"),
    "PegasusForConditionalGeneration, three tables": lambda: pre_norm(
        "PegasusForConditionalGeneration", tie_word_embeddings=False, scale_embedding=False
    ),
    "BlenderbotForConditionalGeneration": lambda: pre_norm("BlenderbotForConditionalGeneration"),
    "ViTModel": lambda: vit("ViTModel"),
    "ViTForImageClassification": lambda: vit("ViTForImageClassification"),
    "LlamaForCausalLM": llama,
    "LlamaForCausalLM, tied": lambda: llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "LlamaForCausalLM, base": lambda: llama(rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    **{f"LlamaForCausalLM, {kind}": lambda kind=kind: llama(**SCALED[kind]) for kind in SCALED},
    "Qwen2ForCausalLM": lambda: llama("Qwen2ForCausalLM"),
    "Qwen2ForCausalLM, yarn": lambda: llama("Qwen2ForCausalLM", **SCALED["yarn"]),
    "Qwen3ForCausalLM": lambda: llama("Qwen3ForCausalLM"),
    "Qwen3ForCausalLM, yarn, biases": lambda: llama(
        "Qwen3ForCausalLM", attention_bias=True, tie_word_embeddings=True, **SCALED["yarn"]
    ),
    "Phi3ForCausalLM": lambda: phi3(),
    "Phi3ForCausalLM, window": lambda: phi3(sliding_window=4, tie_word_embeddings=True),
    "Phi3ForCausalLM, longrope": lambda: phi3(**LONGROPE, original_max_position_embeddings=20),
    "Phi3ForCausalLM, longrope, beyond": lambda: phi3(**LONGROPE, original_max_position_embeddings=5),
    "Gemma3ForCausalLM": lambda: gemma3(),
    "Gemma3ForCausalLM, scaled": lambda: gemma3(
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
        tie_word_embeddings=False,
        attention_bias=True,
    ),
    "Gemma3ForCausalLM, pattern": lambda: gemma3(
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    ),
    "GPTNeoXForCausalLM, half": lambda: gpt_neox(
        rope_parameters={"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}
    ),
    "GPTNeoXForCausalLM": lambda: gpt_neox(),
    "GPTNeoXForCausalLM, serial": lambda: gpt_neox(
        use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new", tie_word_embeddings=True
    ),
    "GPTNeoXForCausalLM, linear": lambda: gpt_neox(
        rope_parameters={"rope_type": "linear", "rope_theta": 50.0, "partial_rotary_factor": 0.5, "factor": 3.0}
    ),
    "MistralForCausalLM": lambda: llama("MistralForCausalLM", sliding_window=4),
    "MistralForCausalLM, linear": lambda: llama("MistralForCausalLM", sliding_window=4, **SCALED["linear"]),
}


def bert_without_pooler() -> nn.Module:
    config = transformers.BertConfig(**{**_SIZES, "max_position_embeddings": 13})
    return transformers.BertModel(config, add_pooling_layer=False)


def made(name: str) -> nn.Module:
    """With large weights, and biases and norms that are not those of the start: what is lost must be missed."""
    torch.manual_seed(3)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return with_large_weights(MODELS[name]().eval())


def with_large_weights(model: nn.Module, std: float = 0.4) -> nn.Module:
    for key, p in model.named_parameters():
        if "embed_positions" not in key:
            is_norm = "norm" in key.lower() or ".ln_" in key
            nn.init.normal_(p, mean=1.0 if is_norm and key.endswith("weight") else 0.0, std=std)
    for key, buffer in model.named_buffers():
        if key == "final_logits_bias":
            nn.init.normal_(buffer)
    return model


def saved(name: str, folder: Path) -> nn.Module:
    model = made(name)
    model.save_pretrained(folder)
    return model


def tokens(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(1, 18, (rows, length), generator=torch.Generator().manual_seed(2))
