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
    return Made(model.eval(), {"input_ids": _ids(), "attention_mask": _mask()}, _mask().bool())


def _pair(model: nn.Module) -> Made:
    inputs = {"input_ids": _ids(), "attention_mask": _mask(), "decoder_input_ids": _ids(5)}
    return Made(model.eval(), inputs, None)


def bert() -> Made:
    import transformers as t

    config = t.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40
    )
    return _text(t.BertModel(config))


def gpt2() -> Made:
    import transformers as t

    config = t.GPT2Config(
        vocab_size=50, n_embd=24, n_layer=2, n_head=3, n_positions=64, bos_token_id=1, eos_token_id=49
    )
    return _text(t.GPT2LMHeadModel(config))


def llama() -> Made:
    import transformers as t

    config = t.LlamaConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=40,
    )
    return _text(t.LlamaForCausalLM(config))


def vit() -> Made:
    import transformers as t

    config = t.ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        image_size=(12, 20),
        patch_size=4,
    )
    return Made(t.ViTModel(config).eval(), {"pixel_values": torch.randn(2, 3, 12, 20)}, None)


def bart() -> Made:
    import transformers as t

    config = t.BartConfig(
        vocab_size=50,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        eos_token_id=49,
        forced_eos_token_id=None,
    )
    return _pair(t.BartForConditionalGeneration(config))


def t5() -> Made:
    import transformers as t

    config = t.T5Config(vocab_size=50, d_model=24, d_kv=8, num_layers=2, num_heads=3, d_ff=40, decoder_start_token_id=0)
    return _pair(t.T5ForConditionalGeneration(config))


MODELS: dict[str, Callable[[], Made]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
    "bart": bart,
    "t5": t5,
}


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
