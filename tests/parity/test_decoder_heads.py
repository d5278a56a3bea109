"""Parity with the attention of decoders in transformers: norms of queries and keys, with random weights."""

import math
from typing import Any

import torch
import transformers
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, MultiHead
from regard.layers import Differential, Latent, LayerQKNorm, OutputGate, RMSQKNorm, WholeRMSQKNorm
from regard.normalizers import WithNullSlot
from regard.positions import YaRNScaling

B, T, DIM, HEADS, KV_HEADS, D = 2, 11, 24, 6, 2, 8
SIZES = {
    "hidden_size": DIM,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": D,
    "num_hidden_layers": 1,
    "attn_implementation": "eager",
}


def randomize(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()


def copy_weights(ours: nn.Module, theirs: nn.Module, out: str = "o_proj") -> None:
    """Random weights in both."""
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": out}
    randomize(theirs)
    for mine, name in names.items():
        ours.get_submodule(mine).load_state_dict(theirs.get_submodule(name).state_dict())


def assert_equal(ours: MultiHead | Latent, theirs: nn.Module, rotation: tuple[Tensor, Tensor], x: Tensor) -> None:
    hidden = torch.full((T, T), -torch.inf).triu(1).expand(B, 1, T, T)
    with torch.no_grad():
        want, weights = theirs(x, position_embeddings=rotation, attention_mask=hidden)[:2]
        got = ours.attend(x, mask=regard.Causal(), need=regard.Need(weights=True))
        past = None
        for t in range(T):
            step, past = ours.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], want[:, t], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.out, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.weights, weights, rtol=1e-5, atol=1e-5)


def small_input() -> Tensor:
    return torch.randn(B, T, DIM) / DIM


def rotation_of(embedding: nn.Module, x: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    cos, sin = embedding(x, torch.arange(T).expand(B, -1), *more)
    return cos, sin


def test_qwen3_attention() -> None:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding

    config = transformers.Qwen3Config(**SIZES)
    theirs, x = Qwen3Attention(config, layer_idx=0).eval(), small_input()
    norm = RMSQKNorm(D, eps=config.rms_norm_eps)
    ours = MultiHead(
        DIM, HEADS, kv_heads=KV_HEADS, head_dim=D, qk_norm=norm, rotate=regard.Rotary(D), bias=False
    ).eval()
    copy_weights(ours, theirs)
    norm.load_state_dict({"query_gain": theirs.q_norm.weight, "key_gain": theirs.k_norm.weight})
    assert_equal(ours, theirs, rotation_of(Qwen3RotaryEmbedding(config), x), x)


def test_gemma3_attention() -> None:
    """Gains 1 + w, and queries divided by the root of query_pre_attn_scalar."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention, Gemma3RotaryEmbedding

    config = transformers.Gemma3TextConfig(**SIZES, query_pre_attn_scalar=5, layer_types=["full_attention"])
    theirs, x = Gemma3Attention(config, layer_idx=0).eval(), small_input()
    norm = RMSQKNorm(D, eps=config.rms_norm_eps, offset=1.0)
    ours = MultiHead(
        DIM,
        HEADS,
        kv_heads=KV_HEADS,
        head_dim=D,
        attention=Attention(regard.Dot(scale=5**-0.5)),
        qk_norm=norm,
        rotate=regard.Rotary(D, base=config.rope_parameters["full_attention"]["rope_theta"]),
        bias=False,
    ).eval()
    copy_weights(ours, theirs)
    norm.load_state_dict({"query_gain": theirs.q_norm.weight, "key_gain": theirs.k_norm.weight})
    assert_equal(ours, theirs, rotation_of(Gemma3RotaryEmbedding(config), x, "full_attention"), x)


def test_olmo2_attention() -> None:
    """One norm over all heads."""
    from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention, Olmo2RotaryEmbedding

    config = transformers.Olmo2Config(**SIZES)
    theirs, x = Olmo2Attention(config, layer_idx=0).eval(), small_input()
    norm = WholeRMSQKNorm(HEADS * D, KV_HEADS * D, eps=config.rms_norm_eps)
    ours = MultiHead(
        DIM, HEADS, kv_heads=KV_HEADS, head_dim=D, qk_norm=norm, rotate=regard.Rotary(D), bias=False
    ).eval()
    copy_weights(ours, theirs)
    norm.load_state_dict({"query_gain": theirs.q_norm.weight, "key_gain": theirs.k_norm.weight})
    assert_equal(ours, theirs, rotation_of(Olmo2RotaryEmbedding(config), x), x)


def test_phi_attention() -> None:
    """LayerNorm per head."""
    from transformers.models.phi.modeling_phi import PhiAttention, PhiRotaryEmbedding

    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"} | {"hidden_size": HEADS * D}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    config = transformers.PhiConfig(**sizes, qk_layernorm=True, rope_parameters=rope)
    theirs = PhiAttention(config, layer_idx=0).eval()
    norm = LayerQKNorm(D, eps=config.layer_norm_eps)
    ours = MultiHead(HEADS * D, HEADS, kv_heads=KV_HEADS, qk_norm=norm, rotate=regard.Rotary(D)).eval()
    copy_weights(ours, theirs, "dense")
    norm.query.load_state_dict(theirs.q_layernorm.state_dict())
    norm.key.load_state_dict(theirs.k_layernorm.state_dict())
    x = torch.randn(B, T, HEADS * D) / (HEADS * D)
    assert_equal(ours, theirs, rotation_of(PhiRotaryEmbedding(config), x), x)


def test_qwen3_next_attention() -> None:
    """Gates per head and channel from the projection of the queries, and gains 1 + w."""
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention, Qwen3NextRotaryEmbedding

    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    config = transformers.Qwen3NextConfig(**SIZES, rope_parameters=rope)
    theirs, x = Qwen3NextAttention(config, layer_idx=0).eval(), small_input()
    norm, gate = RMSQKNorm(D, eps=config.rms_norm_eps, offset=1.0), OutputGate(DIM, HEADS, D)
    ours = MultiHead(
        DIM, HEADS, kv_heads=KV_HEADS, head_dim=D, qk_norm=norm, gate=gate, rotate=regard.Rotary(D), bias=False
    ).eval()
    randomize(theirs)
    query, opening = theirs.q_proj.weight.view(HEADS, 2, D, DIM).unbind(1)
    weights = {"query": query.flatten(0, 1), "gate.map": opening.flatten(0, 1)}
    weights |= {"key": theirs.k_proj.weight, "value": theirs.v_proj.weight, "out": theirs.o_proj.weight}
    for name, weight in weights.items():
        ours.get_submodule(name).load_state_dict({"weight": weight})
    norm.load_state_dict({"query_gain": theirs.q_norm.weight, "key_gain": theirs.k_norm.weight})
    assert_equal(ours, theirs, rotation_of(Qwen3NextRotaryEmbedding(config), x), x)


def test_gpt_oss_attention() -> None:
    """A sink per head: a trained null slot in the softmax of every head."""
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding

    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = transformers.GptOssConfig(**SIZES, rope_parameters=rope, layer_types=["full_attention"])
    theirs, x = GptOssAttention(config, layer_idx=0).eval(), small_input()
    sink = WithNullSlot(score=regard.Learnable(0.0, heads=HEADS))
    ours = MultiHead(
        DIM, HEADS, kv_heads=KV_HEADS, head_dim=D, attention=Attention(normalize=sink), rotate=regard.Rotary(D)
    ).eval()
    copy_weights(ours, theirs)
    sink.load_state_dict({"score": theirs.sinks.view(HEADS, 1, 1)})
    assert_equal(ours, theirs, rotation_of(GptOssRotaryEmbedding(config), x), x)


def test_diffllama_attention() -> None:
    """Head i is paired with i + H/2; grouped keys; the layer decides λ₀."""
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, DiffLlamaRotaryEmbedding

    config = transformers.DiffLlamaConfig(**SIZES | {"num_attention_heads": 8, "num_key_value_heads": 4})
    theirs, x = DiffLlamaAttention(config, layer_idx=3).eval(), small_input()
    difference = Differential(D, layer=4, eps=config.rms_norm_eps)
    ours = MultiHead(DIM, 8, kv_heads=4, head_dim=D, difference=difference, rotate=regard.Rotary(D), bias=False).eval()
    copy_weights(ours, theirs)
    for name in ("q1", "k1", "q2", "k2"):
        getattr(theirs, f"lambda_{name}").data.mul_(0.1)
        mine = f"{'query' if name[0] == 'q' else 'key'}_{name[1]}"
        difference.get_parameter(mine).data.copy_(getattr(theirs, f"lambda_{name}"))
    assert_equal(ours, theirs, rotation_of(DiffLlamaRotaryEmbedding(config), x), x)


def deepseek(query_latent: int | None, yarn: bool) -> tuple[nn.Module, nn.Module]:
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
    if yarn:
        rope |= {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0}
        rope |= {"beta_slow": 1.0, "original_max_position_embeddings": 64}
    config = transformers.DeepseekV3Config(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=query_latent,
        kv_lora_rank=10,
        qk_nope_head_dim=5,
        qk_rope_head_dim=D,
        v_head_dim=7,
        num_hidden_layers=1,
        max_position_embeddings=64,
        rope_parameters=rope,
        attn_implementation="eager",
    )
    return DeepseekV3Attention(config, layer_idx=0).eval(), DeepseekV3RotaryEmbedding(config)


@for_each("query_latent", [None, 9])
@for_each("yarn", [False, True])
@for_each("form", ["expanded", "absorbed"])
def test_deepseek_v3_attention(query_latent: int | None, yarn: bool, form: str) -> None:
    """Latents with norms, interleaved pairs, and under YaRN the scale times mscale²."""
    theirs, embedding = deepseek(query_latent, yarn)
    scaling = YaRNScaling(40.0, 64, attention_factor=1.0) if yarn else None
    mscale = 0.1 * math.log(40.0) + 1.0 if yarn else 1.0
    ours = Latent(
        DIM,
        HEADS,
        latent_dim=10,
        head_dim=5,
        rotated_dim=D,
        head_value_dim=7,
        query_latent_dim=query_latent,
        rotate=regard.Rotary(D, pairs="neighbours", scaling=scaling),
        attention=Attention(regard.Dot(scale=(5 + D) ** -0.5 * mscale**2)),
        form=form,
    ).eval()
    randomize(theirs)
    key_up, value_up = theirs.kv_b_proj.weight.view(HEADS, 5 + 7, 10).split((5, 7), dim=1)
    weights = {"key": theirs.kv_a_proj_with_mqa.weight, "norm": theirs.kv_a_layernorm.weight}
    weights |= {"key_up": key_up.flatten(0, 1), "value_up": value_up.flatten(0, 1), "out": theirs.o_proj.weight}
    if query_latent is None:
        weights["query"] = theirs.q_proj.weight
    else:
        parts = theirs.q_a_proj, theirs.q_a_layernorm, theirs.q_b_proj
        weights |= {f"query.{n}": part.weight for n, part in enumerate(parts)}
    with torch.no_grad():
        for name, weight in weights.items():
            ours.get_submodule(name).weight.copy_(weight * 0.3)
        for parameter in theirs.parameters():
            parameter.mul_(0.3)
    x = torch.randn(B, T, DIM)
    assert_equal(ours, theirs, rotation_of(embedding, x), x)
