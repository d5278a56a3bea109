"""Tiny models of random weights, of the kinds that people record, and what their eager path says."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LENGTHS = (7, 5)


class Made(NamedTuple):
    """A model in evaluation and what it is called with; `valid` says which places of its outputs are no padding."""

    model: nn.Module
    inputs: dict[str, Tensor]
    valid: Tensor | None  # "b n"


def _ids(n: int = LENGTHS[0]) -> Tensor:
    return torch.randint(2, 49, (2, n))


def _mask() -> Tensor:
    return (torch.arange(LENGTHS[0]) < torch.tensor(LENGTHS).unsqueeze(-1)).long()


def _text(model: nn.Module) -> Made:
    return Made(model, {"input_ids": _ids(), "attention_mask": _mask()}, _mask().bool())


def _pair(model: nn.Module) -> Made:
    inputs = {"input_ids": _ids(), "attention_mask": _mask(), "decoder_input_ids": _ids(5)}
    return Made(model, inputs, None)


SIZES = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
GROUPED = {**SIZES, "num_attention_heads": 6, "num_key_value_heads": 2}


def built(kind: str, suffix: str, **sizes: Any) -> nn.Module:
    """A model of transformers by the beginning and the end of its name."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes)
    model: nn.Module = getattr(transformers, f"{kind}{suffix}")(config)
    return model.eval()


def bert() -> Made:
    return _text(built("Bert", "Model", **SIZES))


def gpt2() -> Made:
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 49}
    return _text(built("GPT2", "LMHeadModel", vocab_size=50, **sizes))


def llama() -> Made:
    return _text(built("Llama", "ForCausalLM", **GROUPED))


def vit() -> Made:
    model = built("ViT", "Model", **SIZES, image_size=(12, 20), patch_size=4)
    return Made(model, {"pixel_values": torch.randn(2, 3, 12, 20)}, None)


def bart() -> Made:
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in BART_SIDE.items()}
    return _pair(
        built("Bart", "ForConditionalGeneration", vocab_size=50, d_model=24, eos_token_id=49, **sides,
              forced_eos_token_id=None)
    )  # fmt: skip


BART_SIDE = {"layers": 2, "attention_heads": 3, "ffn_dim": 40}


def t5() -> Made:
    sizes = {"vocab_size": 50, "d_model": 24, "d_kv": 8, "num_layers": 2, "num_heads": 3, "d_ff": 40}
    return _pair(built("T5", "ForConditionalGeneration", **sizes, decoder_start_token_id=0))


MODELS: dict[str, Callable[[], Made]] = {make.__name__: make for make in (bert, gpt2, llama, vit, bart, t5)}


def eager_maps(made: Made) -> list[Tensor]:
    """The weights of every attention in the order of the calls, as the model's own eager path gives them."""
    model: Any = made.model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        got = model(**made.inputs, output_attentions=True)
    model.set_attn_implementation("sdpa")
    if "attentions" in got:
        return list(got["attentions"])
    both = zip(got["decoder_attentions"], got["cross_attentions"], strict=True)
    return [*got["encoder_attentions"], *[one for pair in both for one in pair]]
