"""Parity of rotary positions with transformers: every scaling of ROPE_INIT_FUNCTIONS, and positions on several axes."""

from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from regard import Rotary
from regard.positions import (
    AxialSections,
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    MRoPESections,
    NTKScaling,
    ProportionalScaling,
    RotaryScaling,
    YaRNScaling,
)

D, L, BASE = 24, 64, 5000.0
SHORT, LONG = tuple(1 + 0.1 * k for k in range(D // 2)), tuple(1 + 0.5 * k for k in range(D // 2))
_LONGROPE = {"short_factor": list(SHORT), "long_factor": list(LONG), "original_max_position_embeddings": L}
# entries of rope_parameters, and the scaling of texts of 3 tokens and of 100
KINDS: dict[str, tuple[dict[str, Any], RotaryScaling]] = {
    "linear": ({"factor": 4.0}, LinearScaling(4.0)),
    "dynamic": ({"factor": 4.0}, DynamicNTKScaling(4.0, L)),
    "yarn": ({"factor": 4.0, "original_max_position_embeddings": 32}, YaRNScaling(4.0, 32)),
    "longrope": ({**_LONGROPE, "factor": 8.0}, LongRoPEScaling(8.0, L, SHORT, LONG)),
    "llama3": (
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": L},
        Llama3Scaling(8.0, 1.0, 4.0, L),
    ),
    "proportional": ({"factor": 2.0, "partial_rotary_factor": 0.4}, ProportionalScaling(0.4, 2.0)),
}


def theirs_and_ours(kind: str, tokens: int) -> tuple[Any, Any]:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    entries, scaling = KINDS[kind]
    config = transformers.LlamaConfig(
        hidden_size=2 * D,
        num_attention_heads=2,
        max_position_embeddings=L,
        rope_parameters={"rope_type": kind, "rope_theta": BASE, **entries},
    )
    q, places = torch.randn(2, 3, tokens, D), torch.randint(0, tokens, (2, tokens))
    places[:, 0] = tokens - 1  # of both rows the length is the same, as theirs is that of the batch
    cos, sin = LlamaRotaryEmbedding(config)(q, places)
    return apply_rotary_pos_emb(q, q, cos, sin)[0], Rotary(D, base=BASE, scaling=scaling)(q, places)


@pytest.mark.parametrize("kind", ROPE_INIT_FUNCTIONS)
def test_every_kind_of_scaling(kind: str) -> None:
    for tokens in (3, 100):
        theirs, ours = theirs_and_ours(kind, tokens)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_ntk_is_dynamic_at_a_fixed_length() -> None:
    """growth = s n/L − s + 1 = 7 at n = 3 L with s = 3."""
    config = transformers.LlamaConfig(
        hidden_size=2 * D,
        num_attention_heads=2,
        max_position_embeddings=L,
        rope_parameters={"rope_type": "dynamic", "rope_theta": BASE, "factor": 3.0},
    )
    theirs, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, torch.device("cpu"), seq_len=3 * L)
    for scaling in (NTKScaling(7.0), DynamicNTKScaling(3.0, L, length=3 * L)):
        torch.testing.assert_close(scaling.rates(D, BASE, 1, theirs.device), theirs, rtol=1e-6, atol=0)


def test_mrope_of_qwen2_vl() -> None:
    from transformers.models.qwen2_vl import modeling_qwen2_vl as theirs

    sections = (2, 7, 3)
    config = transformers.Qwen2VLTextConfig(
        hidden_size=2 * D,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": BASE, "mrope_section": list(sections)},
    )
    q, places = torch.randn(2, 3, 11, D), torch.randint(0, 300, (3, 2, 11))
    cos, sin = theirs.Qwen2VLRotaryEmbedding(config)(q, places)
    want = theirs.apply_rotary_pos_emb(q, q, cos, sin)[0]
    ours = Rotary(D, base=BASE, axes=MRoPESections(sections))(q, tuple(places))
    torch.testing.assert_close(ours, want, rtol=1e-5, atol=1e-5)


def test_axial_of_the_images_of_qwen2_vl() -> None:
    from transformers.models.qwen2_vl import modeling_qwen2_vl as theirs

    rows, columns = torch.randint(0, 40, (2, 13))
    config = transformers.Qwen2VLConfig().vision_config
    config.embed_dim, config.num_heads, config.head_dim = 3 * D, 3, D
    x = torch.randn(13, 3, D)  # theirs has tokens before heads
    cos, sin = theirs.Qwen2VLVisionRotaryEmbedding(config)(x, torch.stack([rows, columns], -1))
    want = theirs.apply_rotary_pos_emb_vision(x, x, cos, sin)[0]
    ours = Rotary(D, axes=AxialSections((D // 4, D // 4)))(x.transpose(0, 1), (rows, columns)).transpose(0, 1)
    torch.testing.assert_close(ours, want, rtol=1e-5, atol=1e-5)
