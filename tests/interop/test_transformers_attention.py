"""transformers' models on regard: equal to their eager attention, whatever the mask, the cache and the parts."""

import sys
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard.interop.transformers_attention import attention_of_transformers
from regard.interop.transformers_masks import dense_mask_with_rules, rules_of
from regard.kernels.torch_versions import at_least

transformers = pytest.importorskip("transformers")
masking = pytest.importorskip("transformers.masking_utils")

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 99,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "causal": ("GPT2", SIZES),
    "rotary": ("Llama", GROUPED),
    "window": ("Mistral", {**GROUPED, "sliding_window": 4}),
    "soft cap": ("Gemma2", {**GROUPED, "sliding_window": 4, "attn_logit_softcapping": 0.5}),
    "sinks": ("GptOss", {**GROUPED, "sliding_window": 4, "num_local_experts": 4, "num_experts_per_tok": 2}),
}
T = 11
IDS = torch.arange(7, 7 + 3 * T).reshape(3, T)
PADDED = torch.ones(3, T, dtype=torch.long)


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    transformers.logging.set_verbosity_error()
    regard.register_with_transformers()
    regard.register_with_transformers()  # a second time changes nothing


def build(kind: str, suffix: str = "ForCausalLM", config: dict[str, Any] | None = None) -> Any:
    name, sizes = DECODERS[kind] if config is None else (kind, config)
    torch.manual_seed(0)
    suffix = "LMHeadModel" if name == "GPT2" else suffix
    model = getattr(transformers, name + suffix)(getattr(transformers, name + "Config")(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)  # so that attention is not uniform
    return model


def run(model: Any, implementation: str, **inputs: Any) -> Any:
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    return model(**inputs)


def assert_equal(model: Any, kept: Tensor | None = None, **inputs: Any) -> None:
    """The same output and the same gradients as with eager attention; `kept` are the positions that count."""
    outputs, gradients = [], []
    for implementation in ("eager", "regard"):
        out = run(model, implementation, **inputs)[0]
        out = out if kept is None else out[kept]
        model.zero_grad()
        (out / out.detach().abs().max()).square().mean().backward()
        outputs.append(out.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    for one, other in (outputs, gradients):
        assert (one - other).abs().max() <= 1e-5 * one.abs().max()


def padded(left: int, right: int) -> Tensor:
    mask = PADDED.clone()
    mask[0, :left], mask[1, T - right :] = 0, 0
    return mask


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("padding", [(0, 0), (4, 0), (0, 4), (2, 3)], ids=str)
def test_decoders_with_padding(kind: str, padding: tuple[int, int]) -> None:
    mask = padded(*padding)
    assert_equal(build(kind), mask.bool(), input_ids=IDS, attention_mask=mask)


@pytest.mark.parametrize("kind", ["rotary", "window"])
def test_packed_documents(kind: str) -> None:
    """Positions that start again begin another document."""
    positions = torch.cat([torch.arange(5), torch.arange(T - 5)]).expand(3, T)
    assert_equal(build(kind), input_ids=IDS, position_ids=positions, use_cache=False)


def test_encoders_biases_and_cross_attention() -> None:
    mask = padded(0, 4)
    bert = build("Bert", "Model", SIZES)
    assert_equal(bert, mask.bool(), input_ids=IDS, attention_mask=mask)
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 48, "vocab_size": 99}
    t5 = build("T5", "Model", sizes)
    assert_equal(t5, input_ids=IDS, attention_mask=mask, decoder_input_ids=IDS[:, :5])


# quantized keys are rounded to 8 bits; offloaded ones are brought back from another device, for which a GPU is needed
OTHER_CACHES = ["quantized", *(["offloaded", "offloaded_static"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize(
    ("kind", "cache"),
    [*((kind, cache) for kind in DECODERS for cache in ("dynamic", "static")), *(("rotary", c) for c in OTHER_CACHES)],
)
def test_generate(kind: str, cache: str) -> None:
    """Every cache hands the same keys to every attention."""
    model, tokens = build(kind), []
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache, "eos_token_id": None}
    options |= {"cache_config": {"backend": "fp8"}} if cache == "quantized" else {}
    for implementation in ("eager", "regard"):
        model.set_attn_implementation(implementation)
        tokens.append(model.generate(IDS, attention_mask=padded(4, 0), **options))
    assert torch.equal(*tokens)


@pytest.mark.parametrize("kind", ["causal", "window", "sinks"])
def test_weights_are_returned(kind: str) -> None:
    model = build(kind)
    with torch.no_grad():
        ours, eager = (
            run(model, name, input_ids=IDS, output_attentions=True).attentions for name in ("regard", "eager")
        )
    assert len(ours) == 2
    for one, other in zip(ours, eager, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.skipif(not at_least("2.9"), reason="transformers compiles its models with torch 2.9 and newer")
def test_compiled() -> None:
    model = build("Mistral", config={**DECODERS["window"][1], "num_hidden_layers": 1})
    with torch.no_grad():
        eager = run(model, "eager", input_ids=IDS, attention_mask=padded(4, 0))[0]
        model.set_attn_implementation("regard")
        compiled = torch.compile(model, backend="eager")(input_ids=IDS, attention_mask=padded(4, 0))[0]
    kept = padded(4, 0).bool()
    assert (eager - compiled)[kept].abs().max() <= 1e-5 * eager.abs().max()


def test_compiled_in_training() -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
    mask = dense_mask_with_rules(2, 5, 5, attention_mask=torch.ones(2, 5).bool().triu(2).logical_not())

    def attend(*heads: Tensor) -> Tensor:
        return attention_of_transformers(torch.nn.Identity(), *heads, mask)[0]

    plain, compiled = (
        (out := call(q, k, v), *torch.autograd.grad(out.square().sum(), (q, k, v)))
        for call in (attend, torch.compile(attend, backend="aot_eager"))
    )
    for one, other in zip(plain, compiled, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


MASKS: dict[str, tuple[dict[str, Any], str]] = {
    "window": (
        {"mask_function": masking.sliding_window_causal_mask_function(3), "local_size": 3},
        "Window(2, None) & Causal()",
    ),
    "both sides": (
        {"mask_function": masking.sliding_window_bidirectional_mask_function(2), "local_size": 2},
        "Window(2, 2)",
    ),
    "after": ({"attention_mask": padded(0, 4).bool()}, "Causal() & Lengths((3))"),
    "before": ({"attention_mask": padded(4, 0).bool()}, "Causal() & ~Lengths((3))"),
    "around": ({"attention_mask": padded(2, 3).bool()}, "Causal() & BooleanMask((3, 1, 1, 11))"),
    "packed": (
        {
            "mask_function": masking.and_masks(
                masking.causal_mask_function,
                masking.packed_sequence_mask_function(torch.tensor([[0] * 5 + [1] * 6]).expand(3, T)),
            ),
        },
        "Causal() & Documents((3, 11))",
    ),
    "later queries": (
        {"q_length": 2, "q_offset": 5, "attention_mask": padded(2, 0).bool()},
        "Causal() & ~Lengths((3))",
    ),
    "later keys": (
        {"q_length": 2, "q_offset": 9, "kv_length": 6, "kv_offset": 5, "attention_mask": padded(0, 3).bool()},
        "Causal() & Lengths((3))",
    ),
}


@for_each("name", MASKS)
def test_rules_are_the_mask(name: str) -> None:
    changed, text = MASKS[name]
    arguments = {"batch_size": 3, "q_length": T, "kv_length": T, **changed}
    dense = dense_mask_with_rules(**arguments)
    rules = rules_of(dense)
    assert repr(rules.mask) == text
    positions = rules.positions or (torch.arange(T), torch.arange(T))
    written = rules.mask.dense(*positions)
    while written.ndim < 4:
        written = written.unsqueeze(-3)
    assert torch.equal(written.expand(3, 1, *dense.shape[-2:]), dense.expand(3, 1, *dense.shape[-2:]))


def test_unknown_rules_and_changed_masks_are_dense() -> None:
    chunked = masking.chunked_causal_mask_function(3, torch.zeros(3, dtype=torch.long))
    dense = dense_mask_with_rules(3, T, T, mask_function=chunked, local_size=3)
    assert dense is not None
    assert rules_of(dense) is None
    window = dense_mask_with_rules(3, T, T, mask_function=masking.sliding_window_causal_mask_function(3), local_size=3)
    assert rules_of(window[..., :4]) is None


def test_one_query_needs_no_mask_and_several_have_theirs() -> None:
    """Layers of models without fused attention do not know that they are causal."""
    assert dense_mask_with_rules(3, 1, T, q_offset=T - 1) is None
    several = dense_mask_with_rules(3, T, T)
    assert several is not None
    assert repr(getattr(rules_of(several), "mask", None)) == "Causal()"
    assert_equal(build("Splinter", "Model", SIZES), input_ids=IDS)


@for_each(
    ("name", "part"), [("block_indices", "the blocks of keys that an indexer selected"), ("cache", "a paged cache")]
)
def test_parts_without_a_term_are_refused(name: str, part: str) -> None:
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(NotImplementedError) as caught:
        attention_of_transformers(torch.nn.Identity(), x, x, x, None, **{name: torch.zeros(1)})
    assert str(caught.value) == (
        f"Identity attends by {part} ({name}=), for which regard has no term; load the model with "
        "attn_implementation='eager'"
    )


def test_keys_of_an_indexer() -> None:
    """Every query attends to the keys that were selected for it, and that the mask allows."""
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    indices = torch.tensor([[[0, 3], [1, 0], [2, 4], [3, 0], [1, 4]]]).expand(2, 5, 2).int()
    for mask in (None, torch.ones(5, 5).tril().bool().expand(2, 1, 5, 5)):
        out, _ = attention_of_transformers(torch.nn.Identity(), q, k, v, mask, indices=indices)
        for i in range(5):
            keys = [j for j in indices[0, i].tolist() if mask is None or j <= i]
            weights = (q[:, :, i, None] * k[:, :, keys]).sum(-1).div(2.0).softmax(-1)
            expected = (weights.unsqueeze(-1) * v[:, :, keys]).sum(-2)
            assert torch.allclose(out[:, i], expected, atol=1e-6)


def test_a_mask_to_which_numbers_are_appended_has_numbers() -> None:
    config = transformers.PretrainedConfig()
    config.model_type = "deepseek_v4"
    mask = dense_mask_with_rules(2, 3, 3, config=config, dtype=torch.float64)
    assert mask.dtype == torch.float64
    assert torch.equal(mask[0, 0] == 0, torch.ones(3, 3).tril().bool())


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError) as caught:
        regard.register_with_transformers()
    assert (
        str(caught.value)
        == "register_with_transformers needs transformers; install it with: pip install 'regard[record]'"
    )


def test_a_model_that_ignores_the_interface_is_named() -> None:
    with pytest.warns(UserWarning, match="^DebertaV2Model has attention outside of transformers' attention interface"):
        transformers.DebertaV2Model._from_config(transformers.DebertaV2Config(**SIZES), attn_implementation="regard")
    transformers.BertModel._from_config(transformers.BertConfig(**SIZES), attn_implementation="regard")
