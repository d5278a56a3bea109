"""Parity with transformers: biases, rotations and grouped heads of released models, with random weights."""

import pytest
import torch
import transformers
from tests.for_each import for_each

import regard
from regard import Attention, MultiHead

B, H, T, D = 2, 4, 11, 8


@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
def test_t5_buckets(decoder: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    config = transformers.T5Config(
        d_model=16,
        d_kv=4,
        num_heads=H,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        is_decoder=decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = regard.T5Buckets(H, buckets=8, max_distance=20, bidirectional=not decoder)
    with torch.no_grad():
        ours.table.weight.copy_(theirs.relative_attention_bias.weight)
    i = torch.arange(60)
    torch.testing.assert_close(ours(torch.zeros(1, H, 60, D), i, i, 60), theirs.compute_bias(60, 60)[0])


@for_each("heads", [1, 4, 6, 7, 8, 12])
def test_alibi(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, T), heads, torch.float32)  # (heads, 1, T): slope times key position
    ours = regard.ALiBi(heads)(torch.zeros(1, heads, 1, D), torch.tensor([T - 1]), torch.arange(T), T)
    # theirs is shifted by a constant in every row, which a softmax does not see
    torch.testing.assert_close(ours - ours[..., :1], (theirs - theirs[..., :1]).view(heads, 1, T))


def test_rotary_by_halves() -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = transformers.LlamaConfig(hidden_size=H * D, num_attention_heads=H)
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, T, D)
    places = torch.stack([torch.arange(T), torch.arange(T) + 5])
    cos, sin = LlamaRotaryEmbedding(config)(q, places)
    for ours, theirs in zip((q, k), apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        torch.testing.assert_close(regard.Rotary(D)(ours, places), theirs)


def test_rotary_by_neighbours() -> None:
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    x = torch.randn(B, T, H, D)
    sin, cos = create_sinusoidal_positions(T, D).expand(B, -1, -1).chunk(2, dim=-1)
    theirs = apply_rotary_pos_emb(x, sin, cos)
    ours = regard.Rotary(D, pairs="neighbours")(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_llama_attention(kv_heads: int) -> None:
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        hidden_size=H * D, num_attention_heads=H, num_key_value_heads=kv_heads, attn_implementation="eager"
    )
    theirs = LlamaAttention(config, layer_idx=0).eval()
    ours = MultiHead(
        H * D, H, kv_heads=kv_heads, rotate=regard.Rotary(D), attention=Attention(mask=regard.Causal()), bias=False
    )
    with torch.no_grad():
        ours.query.weight.copy_(theirs.q_proj.weight)
        ours.key.weight.copy_(theirs.k_proj.weight)
        ours.value.weight.copy_(theirs.v_proj.weight)
        ours.out.weight.copy_(theirs.o_proj.weight)
    x = torch.randn(B, T, H * D)
    rotation = LlamaRotaryEmbedding(config)(x, torch.arange(T).expand(B, -1))
    hidden = torch.full((T, T), -torch.inf).triu(1).expand(B, 1, T, T)
    want, weights = theirs(x, position_embeddings=rotation, attention_mask=hidden)
    got = ours.attend(x, need=regard.Need(weights=True))
    torch.testing.assert_close(got.out, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.weights, weights, rtol=1e-4, atol=1e-5)


def test_gpt2_attention() -> None:
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    config = transformers.GPT2Config(n_embd=H * D, n_head=H, attn_implementation="eager")
    theirs = GPT2Attention(config, layer_idx=0).eval()
    ours = MultiHead(H * D, H, attention=Attention(mask=regard.Causal()))
    with torch.no_grad():
        torch.nn.init.normal_(theirs.c_attn.bias)
        for linear, weight, bias in zip(
            (ours.query, ours.key, ours.value),
            theirs.c_attn.weight.chunk(3, 1),
            theirs.c_attn.bias.chunk(3),
            strict=True,
        ):
            linear.weight.copy_(weight.T)
            linear.bias.copy_(bias)
        ours.out.weight.copy_(theirs.c_proj.weight.T)
        ours.out.bias.copy_(theirs.c_proj.bias)
    x = torch.randn(B, T, H * D)
    hidden = torch.full((T, T), -torch.inf).triu(1).expand(B, 1, T, T)
    want = theirs(x, attention_mask=hidden)[0]
    torch.testing.assert_close(ours(x), want, rtol=1e-4, atol=1e-5)


def test_relative_positions_by_the_shift_of_transformer_xl() -> None:
    """Transformer-XL left transformers: its shift is written here, right for keys that may be looked at."""
    layer = regard.RelativeXL(6, H, D)
    memory, here = 4, 5
    q = torch.randn(B, H, here, D)
    keys = memory + here
    distances = torch.arange(keys - 1, -1, -1.0)
    rates = 1 / 10000 ** (torch.arange(0.0, 6, 2) / 6)
    angles = distances[:, None] * rates
    relative = layer.position(torch.cat([angles.sin(), angles.cos()], -1)).view(keys, H, D)
    by_distance = torch.einsum("bhid,jhd->bhij", q + layer.v, relative)
    padded = torch.cat([by_distance.new_zeros(B, H, here, 1), by_distance], -1)
    shifted = padded.view(B, H, keys + 1, here)[:, :, 1:].reshape(B, H, here, keys)
    i, j = torch.arange(memory, keys), torch.arange(keys)
    ours = layer(q, i, j, keys)
    seen = regard.Causal().dense(i, j)
    torch.testing.assert_close(ours[..., seen], (shifted / D**0.5)[..., seen], rtol=1e-4, atol=1e-5)
