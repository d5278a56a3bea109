"""Models of transformers as they run, fused: the maps are those of the eager path, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from tests.recording.models import GROUPED, MODELS, Made, built, eager_maps, gpt2, llama
from torch import Tensor

import regard
from regard.viz.recording import selection

NAMES = {
    "bert": ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"],
    "gpt2": ["transformer.h.0.attn", "transformer.h.1.attn"],
    "llama": ["model.layers.0.self_attn", "model.layers.1.self_attn"],
    "bart": [
        "model.encoder.layers.0.self_attn",
        "model.encoder.layers.1.self_attn",
        "model.decoder.layers.0.self_attn",
        "model.decoder.layers.0.encoder_attn",
        "model.decoder.layers.1.self_attn",
        "model.decoder.layers.1.encoder_attn",
    ],
}


def tensors(out: Any) -> dict[str, Tensor]:
    return {name: one for name, one in out.items() if isinstance(one, Tensor)}


@for_each("name", MODELS)
def test_the_fused_path_gives_the_maps_of_the_eager_path(name: str) -> None:
    made = MODELS[name]()
    with torch.no_grad():
        want = tensors(made.model(**made.inputs))
        with regard.record(made.model) as tape:
            got = tensors(made.model(**made.inputs))
    for part in want:
        assert torch.equal(want[part], got[part]), part
    eager = eager_maps(made)
    assert len(tape) == len(eager)
    for one, weights in zip(tape, eager, strict=True):
        assert one.captured_from == "sdpa"
        assert one.verified
        assert one.certificate is not None
        assert one.certificate <= 1e-5
        torch.testing.assert_close(one.weights.dense(), weights, rtol=0.0, atol=1e-6)
        assert one.kind == ("cross" if "encoder_attn" in one.name or "EncDec" in one.name else "self")
    if name in NAMES:
        assert list(tape.names) == NAMES[name]


@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@for_each(("name", "implementation"), [*((name, "eager") for name in MODELS), ("llama", "flex_attention")])
def test_other_paths_are_heard_alike(name: str, implementation: str) -> None:
    made = MODELS[name]()
    eager = eager_maps(made)
    made.model.set_attn_implementation(implementation)
    with torch.no_grad(), regard.record(made.model) as tape:
        made.model(**made.inputs)
    for one, weights in zip(tape, eager, strict=True):
        assert one.verified
        valid: Any = 1.0
        if implementation == "eager":
            # followed from the product on: queries and keys are kept, not the weights
            assert (one.captured_from, type(one.weights).__name__) == ("softmax", "LazyMap")
        else:
            assert one.captured_from == "flex_attention"
            valid = made.valid[:, None, :, None]
        torch.testing.assert_close(one.weights.dense() * valid, weights * valid, rtol=0.0, atol=1e-6)


def generated(made: Made, **how: Any) -> tuple[Tensor, regard.recording.Recording]:
    ids = made.inputs["input_ids"][:1]
    plain: Any = made.model
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, **how}
    want = plain.generate(ids, **options)
    with regard.record(made.model) as tape:
        got = plain.generate(ids, **options)
    assert torch.equal(want, got)
    return got, tape


@for_each("name", ["gpt2", "llama", "bart", "t5"])
def test_generated_steps_are_stitched_into_the_map_of_one_pass(name: str) -> None:
    made = MODELS[name]()
    text, tape = generated(made)
    inputs = {"input_ids": text[:, :-1]}
    if name in ("bart", "t5"):
        inputs = {"input_ids": made.inputs["input_ids"][:1], "decoder_input_ids": text[:, :-1]}
    else:
        steps = tape[tape.names[0]]
        assert [(one.call, one.step) for one in steps] == [(0, 0), (1, 7), (2, 8), (3, 9), (4, 10)]
    with torch.no_grad(), regard.record(made.model) as whole:
        made.model(**inputs)
    for one, same in zip(tape.stitch(), whole, strict=True):
        assert one.verified
        assert (one.name, one.kind) == (same.name, same.kind)
        torch.testing.assert_close(one.weights.dense(), same.weights.dense(), rtol=0.0, atol=1e-6)


@for_each(
    ("implementation", "cache"),
    [(name, cache) for name in ("eager", "sdpa", "regard") for cache in ("dynamic", "static")],
)
def test_every_cache_gives_the_steps_and_labels_of_one_pass(implementation: str, cache: str) -> None:
    assert_steps_and_labels_of_one_pass(implementation, cache)


def assert_steps_and_labels_of_one_pass(implementation: str, cache: str) -> None:
    regard.register_with_transformers()
    made = llama()
    plain: Any = made.model
    plain.set_attn_implementation(implementation)
    text, recording = generated(made, cache_implementation=cache, disable_compile=True)
    recording = recording.with_labels([f"t{n}" for n in range(11)])
    steps = recording[recording.names[0]]
    assert [step.step for step in steps] == [0, 7, 8, 9, 10]
    assert [recording.labels(step)[0] for step in list(steps)[1:]] == [("t7",), ("t8",), ("t9",), ("t10",)]
    with torch.no_grad(), regard.record(made.model) as whole:
        made.model(text[:, :-1])
    for one, same in zip(recording.stitch(), whole, strict=True):
        torch.testing.assert_close(one.weights.dense()[..., :11], same.weights.dense(), rtol=0.0, atol=1e-6)
        assert not one.weights.dense()[..., 11:].any()


# transformers compiles flex_attention again for every length. Uncompiled, its mask reads the offset of a cache of fixed
# size after the cache has advanced it, so that the model attends to one empty key: that cache is not compared
@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
def test_flex_attention_gives_the_steps_and_labels_of_one_pass() -> None:
    assert_steps_and_labels_of_one_pass("flex_attention", "dynamic")


def mistral(window: int) -> Made:
    model = built("Mistral", "ForCausalLM", **GROUPED, sliding_window=window, bos_token_id=1)
    return Made(model, {"input_ids": torch.randint(2, 49, (1, 7))}, None)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(("cache", "window"), [("dynamic", 3), ("dynamic", 9), ("static", 3)])
def test_a_cache_of_a_sliding_window_knows_its_steps(
    cache: str, window: int, implementation: str, tmp_path: Path
) -> None:
    """It holds the last keys alone: where they stand is told by the calls before, from which they came."""
    made = mistral(window)
    made.model.set_attn_implementation(implementation)
    how = {} if cache == "dynamic" else {"cache_implementation": "static", "disable_compile": True}
    text, tape = generated(made, **how)
    tape = tape.with_labels([f"w{n}" for n in range(text.shape[1])])
    steps = tape[tape.names[0]]
    assert [one.step for one in steps] == [0, 7, 8, 9, 10]
    if window == 3:
        assert [one.first for one in steps] == [0, 5, 6, 7, 8]
        assert tape.labels(steps[2]) == (("w8",), ("w6", "w7", "w8"))
        assert selection.row_and_column_labels(steps[2:3], steps[2], 1)[1] == ["6", "7", "8"]
    else:
        assert [one.first for one in steps] == [0, 0, 0, 1, 2]
    with torch.no_grad(), regard.record(made.model) as whole:
        made.model(text[:, :-1])
    stitched = tape.stitch()
    for some in (stitched, regard.recording.Recording.load(stitched.save(tmp_path / "a.safetensors"))):
        for one, same in zip(some, whole, strict=True):
            assert one.verified
            torch.testing.assert_close(one.weights.dense()[..., :11], same.weights.dense(), rtol=0.0, atol=1e-6)
            assert torch.equal(one.allowed()[..., :11], same.allowed())
            assert torch.equal(one.weights.pick(0, 2).rows(slice(8, 10)), one.weights.dense()[0, 2, 8:10])
    if window == 3:
        with pytest.raises(
            ValueError, match="begin at position 8, and its cache has dropped the keys before that; stitch"
        ):
            tape.select(calls=slice(2, 4)).stitch()


def test_a_sliding_window_under_a_beam_search() -> None:
    """Samples that change places are those of the call before all the same."""
    _, tape = generated(mistral(4), num_beams=3)
    assert [one.step for one in tape[tape.names[0]]] == [0, 7, 8, 9, 10]


def test_a_cache_that_was_cut_is_no_window_that_slid() -> None:
    """The same numbers of queries and keys, and other keys: what was said last is taken back."""
    import transformers

    made = mistral(50)
    ids = made.inputs["input_ids"]
    cache = transformers.DynamicCache()
    with torch.no_grad(), regard.record(made.model) as tape:
        made.model(ids, past_key_values=cache)
        cache.crop(-3)
        made.model(ids[:, 4:5], past_key_values=cache)
    assert [(one.step, one.first) for one in tape[tape.names[0]]] == [(0, 0), (4, 0)]


def test_the_keys_of_a_generation_are_kept_once() -> None:
    made = gpt2()
    _, tape = generated(made, max_new_tokens=20)
    maps = tape[tape.names[0]]
    owned = {one.weights.call.keys.untyped_storage().data_ptr(): one.weights.call.keys for one in maps}
    kept = sum(keys.untyped_storage().nbytes() for keys in owned.values())
    last = maps[-1].weights.call.keys
    assert kept <= 4 * last.nbytes


def test_places_of_an_image_are_told() -> None:
    made = MODELS["vit"]()
    with torch.no_grad(), regard.record(made.model) as tape:
        made.model(**made.inputs)
    assert tape[0].shape == (2, 3, 16, 16)
    assert tape[0].grid == (3, 5)


def test_a_captioner_attends_to_patches_of_the_image() -> None:
    import transformers as t

    encoder = t.ViTConfig(
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=7,
        image_size=(6, 10),
        patch_size=2,
    )
    decoder = t.GPT2Config(
        vocab_size=19, n_embd=12, n_layer=1, n_head=3, n_positions=32, add_cross_attention=True, bos_token_id=1
    )
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = t.VisionEncoderDecoderModel(config).eval()
    # as many words as the image has tokens: their self attention has no grid
    with torch.no_grad(), regard.record(model) as recording:
        model(pixel_values=torch.rand(1, 3, 6, 10), decoder_input_ids=torch.randint(2, 19, (1, 16)))
    grids = {recorded.name.rpartition(".")[2]: recorded.grid for recorded in recording}
    assert grids == {"attention": (3, 5), "attn": None, "crossattention": (3, 5)}


def test_left_padding_is_looked_at_by_nobody() -> None:
    made = gpt2()
    ids = made.inputs["input_ids"]
    mask = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1]])
    with torch.no_grad(), regard.record(made.model) as tape:
        made.model(ids, attention_mask=mask)
    for one in tape:
        assert one.verified
        assert not one.weights.dense()[1, :, 2:, :2].any()
