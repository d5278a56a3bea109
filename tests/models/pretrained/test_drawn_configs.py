"""Decoders of transformers with configs drawn by seed: the same logits, saved again, and the same texts."""

import copy
import random
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.for_each import for_each
from tests.models.pretrained.released import with_large_weights
from torch import Tensor, nn

from regard.decoding.greedy import greedy
from regard.decoding.prompts import prompt_batch
from regard.decoding.search import NormalizedBeam, run_search
from regard.models.pretrained import load_pretrained, save_pretrained

V, HEADS, WIDTH, LIMIT, END = 23, 4, 24, 8, 2
PROMPTS = [[3, 5, 1], [6], [1, 3, 3, 9, 4]]
CLASSES = ("Llama", "Mistral", "Qwen2", "Qwen3", "Phi3", "Gemma3Text", "GPTNeoX")
KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")


def rope(draw: random.Random, pairs: int, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """An entry `rope_parameters` for this many pairs."""
    kind, original = draw.choice(kinds), draw.choice([5, 10, 20, 64])
    entries: dict[str, Any] = {"rope_type": kind, "rope_theta": draw.choice([100.0, 10000.0, 5e5])}
    factor = draw.choice([2.0, 4.0, 40.0])
    if kind in ("linear", "dynamic"):
        entries |= {"factor": factor}
    if kind == "yarn":
        entries |= {"factor": factor, "original_max_position_embeddings": original}
        entries |= draw.choice([{}, {"beta_fast": 2.0, "beta_slow": 0.5}, {"truncate": False}])
        entries |= draw.choice([{}, {"attention_factor": 0.7}, {"mscale": 0.7, "mscale_all_dim": 0.5}])
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            entries[name] = [1 + 3 * draw.random() for _ in range(pairs)]
        entries |= {"original_max_position_embeddings": original, **draw.choice([{}, {"factor": factor}])}
        entries |= draw.choice([{}, {"attention_factor": 1.2}])
    if kind == "llama3":
        entries |= {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": draw.choice([2.0, 4.0])}
        entries |= {"original_max_position_embeddings": original}
    return entries


def drawn(seed: int) -> nn.Module:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kind, head_dim, kv_heads = CLASSES[seed % len(CLASSES)], draw.choice([4, 6, 10]), draw.choice([1, 2, 4])
    config: dict[str, Any] = {"vocab_size": V, "hidden_size": WIDTH, "num_hidden_layers": 2}
    config |= {"num_attention_heads": HEADS, "intermediate_size": draw.choice([10, 17])}
    config |= {"max_position_embeddings": draw.choice([10, 40, 80]), "tie_word_embeddings": draw.random() < 0.5}
    config |= {"bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0}
    if kind == "GPTNeoX":
        entries = rope(draw, WIDTH // HEADS // 2, ("default", "linear", "dynamic", "yarn", "llama3"))
        config |= {"rope_parameters": {**entries, "partial_rotary_factor": 1.0}}
        config |= {"use_parallel_residual": draw.random() < 0.5, "attention_bias": draw.random() < 0.5}
        config |= {"hidden_act": draw.choice(["gelu", "gelu_new", "relu"])}
    elif kind == "Gemma3Text":
        names = ("sliding_attention", "full_attention")
        entries = {name: rope(draw, head_dim // 2) for name in names}
        for each in entries.values():  # transformers 5.22 looks for it beside the kinds of layers, where it never is
            each.pop("truncate", None)
        config |= {"rope_parameters": entries}
        config |= {"layer_types": [draw.choice(names) for _ in range(2)], "sliding_window": draw.choice([2, 4, 64])}
        config |= {"num_key_value_heads": kv_heads, "head_dim": head_dim, "attention_bias": draw.random() < 0.5}
        config |= {"query_pre_attn_scalar": draw.choice([3, 7, head_dim])}
    else:
        whole = kind != "Phi3"
        entries = rope(draw, head_dim // 2) if whole else rope(draw, WIDTH // HEADS // 2, ("default", "longrope"))
        config |= {"rope_parameters": entries, "num_key_value_heads": kv_heads}
        config |= {"hidden_act": draw.choice(["silu", "gelu", "gelu_pytorch_tanh", "relu"])}
        config |= {"head_dim": head_dim} if whole else {"original_max_position_embeddings": 40}
        config |= {"sliding_window": draw.choice([None, 3, 50])} if kind in ("Mistral", "Phi3") else {}
        config |= {"attention_bias": draw.random() < 0.5} if kind in ("Llama", "Qwen3") else {}
        config |= {"mlp_bias": draw.random() < 0.5} if kind == "Llama" else {}
    name = kind.removesuffix("Text") + "ForCausalLM"
    made = getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**config))
    return with_large_weights(made.eval(), 0.3)


def assert_near(got: Tensor, want: Tensor) -> None:
    assert (got - want).abs().max() <= 1e-5 * max(1.0, float(want.abs().max()))


@for_each("seed", range(70), share=0.05)
@torch.no_grad()
def test_a_drawn_decoder_is_that_of_transformers(seed: int, tmp_path: Path) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    theirs = drawn(seed)
    theirs.save_pretrained(tmp_path / "theirs")
    model = load_pretrained(tmp_path / "theirs").model
    text = torch.randint(3, V, (3, 4 + seed % 27))
    # dynamic rotary positions of transformers keep the frequencies of the longest text before
    want = copy.deepcopy(theirs)(text).logits
    assert_near(model(text), want)
    save_pretrained(model, tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert_near(again(text).logits, want)
    prompts, limits = prompt_batch(PROMPTS), torch.full((3,), LIMIT)
    state = model.init_state(prompts.tokens, prompts.lengths)
    found = greedy(model, state, bos=prompts.last, eos=END, limits=limits)
    beams = run_search(model, state, NormalizedBeam(3), limits, range(3), bos=prompts.last, eos=END, forbidden=())
    for prompt, one, (best,) in zip(PROMPTS, found, beams, strict=True):
        ids = torch.tensor([prompt])
        for size, tokens in ((1, one.tokens), (3, best.tokens)):
            by: dict[str, Any] = {"max_new_tokens": LIMIT, "num_beams": size, "do_sample": False}
            by |= {"eos_token_id": END, "pad_token_id": END, "attention_mask": torch.ones_like(ids)}
            new = copy.deepcopy(theirs).generate(ids, **by)[0, len(prompt) :].tolist()
            assert tokens == tuple(new[: new.index(END)] if END in new else new)
