"""Checkpoints of transformers, read and written: the same outputs in both directions."""

import json
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.for_each import for_each
from tests.models.pretrained.released import MODELS, V, made, saved, tokens
from torch import Tensor, nn

from regard import Lengths, Rotary
from regard.models import (
    BERT,
    GPT2,
    BERTClassifier,
    BERTMaskedLM,
    Gemma3,
    LanguageModel,
    Llama,
    Phi3,
    Transformer,
    ViTClassifier,
)
from regard.models.pretrained import ARCHITECTURES, load_pretrained, save_pretrained
from regard.positions import DynamicNTKScaling, NTKScaling

LENGTHS = torch.tensor([4, 7, 1])
PADDED = (torch.arange(7) < LENGTHS[:, None]).long()


def close(ours: Tensor, theirs: Tensor) -> None:
    """1e-5 relative to the greatest output."""
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-5


def real(states: Tensor) -> Tensor:  # "b t …" -> "n …"
    return states[PADDED.bool()]


def compare(ours: nn.Module, theirs: Any) -> None:
    """The outputs of both, on a padded batch."""
    text, types = tokens(), tokens() % 2
    if isinstance(ours, BERT):
        output = theirs(text, attention_mask=PADDED, token_type_ids=types)
        states = ours(text, Lengths(LENGTHS), types=types)
        close(real(states), real(output.last_hidden_state))
        assert (ours.pooler is None) == (output.pooler_output is None)
        if ours.pooler is not None:
            close(ours.pooler(states[:, 0]), output.pooler_output)
        close(ours(text), theirs(text).last_hidden_state)  # all of type 0
    elif isinstance(ours, BERTMaskedLM):
        output = theirs(text, attention_mask=PADDED, token_type_ids=types)
        logits = output.prediction_logits if hasattr(output, "prediction_logits") else output.logits
        close(real(ours(text, Lengths(LENGTHS), types=types)), real(logits))
    elif isinstance(ours, BERTClassifier):
        output = theirs(text, attention_mask=PADDED, token_type_ids=types)
        close(ours(text, Lengths(LENGTHS), types=types), output.logits)
    elif isinstance(ours, LanguageModel):
        output = theirs(text)
        if hasattr(output, "logits"):
            close(ours(text), output.logits)
        else:
            close(ours.hidden_states(text).states, output.last_hidden_state)
    elif isinstance(ours, Transformer):
        target = tokens(3, 5)
        output = theirs(input_ids=text, attention_mask=PADDED, decoder_input_ids=target)
        close(ours(text, LENGTHS, target), output.logits)
    else:
        images = torch.randn(3, 2, 6, 6)
        output = theirs(images)
        if isinstance(ours, ViTClassifier):
            close(ours(images), output.logits)
        else:
            close(ours(images), output.last_hidden_state)
            close(ours.pooler(ours(images)[:, 0]), output.pooler_output)


@for_each("name", MODELS, share=0.5)
@torch.no_grad()
def test_both_directions(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path / "theirs")
    loaded = load_pretrained(tmp_path / "theirs")
    assert loaded.architecture == name.partition(" ")[0].strip(",")
    compare(loaded.model, theirs)
    heads = name == "BertForPreTraining"
    assert [key for key in loaded.unused if not (heads and "pooler" in key)] == (
        ["cls.seq_relationship.bias", "cls.seq_relationship.weight"] if heads else []
    )
    assert not loaded.model.training

    save_pretrained(loaded.model, tmp_path / "ours", loaded.config.values)
    # a Qwen2 is saved as a Llama with one more bias, which is zero
    kind = transformers.LlamaForCausalLM if name.startswith("Qwen2") else type(theirs)
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    if not heads and "without" not in name:
        assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    if "without" not in name:
        compare(loaded.model, again.eval())
    ours = load_pretrained(tmp_path / "ours").model
    for (key, one), other in zip(ours.state_dict().items(), loaded.model.state_dict().values(), strict=True):
        assert torch.equal(one, other), key


def test_every_architecture_is_compared() -> None:
    assert {name.partition(" ")[0].strip(",") for name in MODELS} == set(ARCHITECTURES)


def rewrite(folder: Path, change: Callable[[str, Tensor], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(path).items():
        tensors |= {key: part.contiguous() for key, part in change(name, tensor).items()}
    save_file(tensors, path)


def old_names(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if "LayerNorm" in name:
        name = name.replace("weight", "gamma").replace("bias", "beta")
    return {name: tensor}


@pytest.mark.parametrize(
    "change",
    [
        old_names,
        lambda name, tensor: {name.removeprefix("bert."): tensor},
        lambda name, tensor: {name: tensor, "bert.embeddings.position_ids": torch.arange(13)},
        lambda name, tensor: {name.replace("predictions.bias", "predictions.decoder.bias"): tensor},
        lambda name, tensor: (
            {name: tensor, "cls.predictions.decoder.weight": tensor.clone()} if "word" in name else {name: tensor}
        ),
    ],
    ids=["gamma and beta", "no prefix", "position_ids", "one bias of the decoder", "two tables"],
)
@torch.no_grad()
def test_bert_of_other_versions(change: Any, tmp_path: Path) -> None:
    theirs = saved("BertForMaskedLM", tmp_path)
    rewrite(tmp_path, change)
    loaded = load_pretrained(tmp_path)
    assert loaded.unused == ()
    compare(loaded.model, theirs)


@torch.no_grad()
def test_a_bare_encoder_of_a_checkpoint_with_heads(tmp_path: Path) -> None:
    """The heads are named, and left out."""
    theirs = saved("BertForPreTraining", tmp_path)
    edit(tmp_path, architectures=None)
    loaded = load_pretrained(tmp_path, "BertModel")
    assert loaded.task == "embed"
    with pytest.raises(ValueError, match="unknown architecture 'BertModl'; did you mean 'BertModel'"):
        load_pretrained(tmp_path, "BertModl")
    assert len(loaded.unused) == 7
    assert all(name.startswith("cls.") for name in loaded.unused)
    compare(loaded.model, theirs.bert)


_OLD_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM, linear", {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 3.0}}),
    "phi3": (
        "Phi3ForCausalLM, longrope, beyond",
        {
            "rope_theta": 100.0,
            "partial_rotary_factor": 0.5,
            "rope_scaling": {"type": "su", "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0]},
        },
    ),
    "gemma3": (
        "Gemma3ForCausalLM, pattern",
        {
            "layer_types": None,
            "sliding_window_pattern": 2,
            "rope_theta": 500.0,
            "rope_local_base_freq": 50.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    "gpt-neox": ("GPTNeoXForCausalLM, half", {"rotary_pct": 0.5, "rotary_emb_base": 50}),
}


@for_each("name", _OLD_CONFIGS)
@torch.no_grad()
def test_configs_of_older_versions(name: str, tmp_path: Path) -> None:
    """The entries of rotary positions have moved."""
    model, entries = _OLD_CONFIGS[name]
    theirs = saved(model, tmp_path)
    edit(tmp_path, rope_parameters=None, **entries)
    if name == "gpt-neox":
        rewrite(tmp_path, lambda key, tensor: {key.replace("lm_head", "embed_out"): tensor})
    compare(load_pretrained(tmp_path).model, theirs)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
@torch.no_grad()
def test_gpt2_with_mask_buffers_and_a_copy_of_its_table(prefix: str, tmp_path: Path) -> None:
    theirs = saved("GPT2LMHeadModel", tmp_path)

    def change(name: str, tensor: Tensor) -> dict[str, Tensor]:
        name = name.removeprefix("transformer.")
        parts = {prefix + name: tensor}
        if name.endswith("c_attn.bias"):
            parts[prefix + name.replace("c_attn.", "")] = torch.ones(1, 1, 13, 13).tril().bool()
            parts[prefix + name.replace("c_attn.bias", "masked_bias")] = torch.tensor(-1e4)
        if name == "wte.weight":
            parts["lm_head.weight"] = tensor.clone()
        return parts

    rewrite(tmp_path, change)
    loaded = load_pretrained(tmp_path)
    assert loaded.unused == ()
    compare(loaded.model, theirs)


@pytest.mark.parametrize("shards", [1, 3], ids=["one file", "shards"])
@pytest.mark.parametrize("kind", ["safetensors", "pickle"])
@torch.no_grad()
def test_files_of_weights(kind: str, shards: int, tmp_path: Path) -> None:
    theirs = saved("GPT2LMHeadModel", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    name = "model.safetensors" if kind == "safetensors" else "pytorch_model.bin"
    write = save_file if kind == "safetensors" else torch.save
    if shards == 1:
        write(tensors, tmp_path / name)
    else:
        keys = sorted(tensors)
        parts = {f"part-{n}{Path(name).suffix}": keys[n::shards] for n in range(shards)}
        for part, names in parts.items():
            write({key: tensors[key] for key in names}, tmp_path / part)
        index = {"weight_map": {key: part for part, names in parts.items() for key in names}}
        (tmp_path / f"{name}.index.json").write_text(json.dumps(index))
    compare(load_pretrained(tmp_path).model, theirs)


@torch.no_grad()
def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    theirs = made("LlamaForCausalLM").bfloat16()
    theirs.save_pretrained(tmp_path)
    loaded = load_pretrained(tmp_path).model
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    compare(loaded, type(theirs).from_pretrained(tmp_path, dtype=torch.float32).eval())


def test_older_entries_of_rotary_positions(tmp_path: Path) -> None:
    saved("LlamaForCausalLM", tmp_path)
    edit(tmp_path, rope_parameters=None, rope_theta=700.0, rope_scaling=None)
    assert load_pretrained(tmp_path).model.stack.layers[0].attention.rotate.base == 700.0


@pytest.mark.parametrize("window", [{"sliding_window": 4}, {"sliding_window": None}, {}], ids=str)
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM"])
@torch.no_grad()
def test_windows_are_those_of_transformers(name: str, window: dict[str, int | None], tmp_path: Path) -> None:
    """An entry of a Llama is ignored; a Mistral without one has the default."""
    theirs = saved(name, tmp_path)
    path = tmp_path / "config.json"
    values = {key: value for key, value in json.loads(path.read_text()).items() if key != "sliding_window"}
    path.write_text(json.dumps({**values, **window}))
    ours = load_pretrained(tmp_path).model
    compare(ours, type(theirs).from_pretrained(tmp_path).eval())
    expected = window.get("sliding_window", 4096) if name.startswith("Mistral") else None
    assert (ours.stack.memory or None) == expected


def edit(folder: Path, **entries: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_names_of_classes_are_kept(tmp_path: Path) -> None:
    saved("BertForSequenceClassification", tmp_path)
    model = load_pretrained(tmp_path).model
    names = {str(n): name for n, name in enumerate("abcde")}
    save_pretrained(model, tmp_path / "named", {"id2label": names, "label2id": {v: int(k) for k, v in names.items()}})
    assert transformers.AutoConfig.from_pretrained(tmp_path / "named").id2label == dict(enumerate("abcde"))
    with pytest.raises(ValueError, match="id2label must name 5 classes, got 1; name each class once"):
        save_pretrained(model, tmp_path / "wrong", {"id2label": {"0": "a"}})
    assert not (tmp_path / "wrong").exists()


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


class Runs:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no folder": ("BertModel", lambda f: f.rename(f.with_name("moved")), "there is no folder .*; name one that holds"),
    "no config": (
        "BertModel",
        lambda f: (f / "config.json").unlink(),
        "holds no config.json, .*made by save_pretrained",
    ),
    "a config that is no JSON": (
        "BertModel",
        lambda f: (f / "config.json").write_text("{"),
        r"config.json is no JSON \(Expecting .*\); restore the file",
    ),
    "a config that is a list": (
        "BertModel",
        lambda f: (f / "config.json").write_text("[]"),
        "a JSON object, got a list",
    ),
    "rotary positions that are no object": (
        "LlamaForCausalLM",
        lambda f: edit(f, rope_parameters="yarn"),
        "rope_parameters of .*config.json must be an object; correct the file",
    ),
    "an unsupported architecture": (
        "BertModel",
        lambda f: edit(f, architectures=["T5ForConditionalGeneration"]),
        "names the architecture 'T5ForConditionalGeneration', and regard loads Bert.*; name a folder of one of these",
    ),
    "no architecture": (
        "BertModel",
        lambda f: edit(f, architectures=[]),
        r'names no architecture; write "architectures": \["…"\] into it, with one of BertModel, ',
    ),
    "an architecture that is no text": (
        "BertModel",
        lambda f: edit(f, architectures=[["BertModel"]]),
        r"names the architecture \['BertModel'\], and regard loads",
    ),
    "a missing entry": (
        "BertModel",
        lambda f: edit(f, hidden_size=None),
        "has no entry 'hidden_size'; save the model again",
    ),
    "an entry of another type": (
        "BertModel",
        lambda f: edit(f, hidden_size="12"),
        "hidden_size of .* must be a whole number, got '12'",
    ),
    "an unknown activation": (
        "BertModel",
        lambda f: edit(f, hidden_act="mish"),
        "hidden_act='mish', and regard supports gelu",
    ),
    "an option that changes numbers": (
        "GPT2LMHeadModel",
        lambda f: edit(f, scale_attn_by_inverse_layer_idx=True),
        "scale_attn_by_inverse_layer_idx=True, and regard supports scale_attn_by_inverse_layer_idx=False only",
    ),
    "scaled rotary positions": (
        "LlamaForCausalLM",
        lambda f: edit(f, rope_parameters={"rope_type": "xpos", "rope_theta": 1.0}),
        "scales rotary positions by 'xpos', and regard supports default, linear, dynamic, .*; take another checkpoint",
    ),
    "a rotation of part of a head": (
        "LlamaForCausalLM",
        lambda f: edit(f, rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.5}),
        "partial_rotary_factor=0.5, and regard supports partial_rotary_factor=1.0 only; take another checkpoint",
    ),
    "factors of other pairs": (
        "LlamaForCausalLM, longrope",
        lambda f: edit(f, head_dim=6),
        "the rotary positions in .*config.json make no rotation .short and long must have a factor for each of the 3 "
        "pairs .*; correct the file",
    ),
    "factors that are no list": (
        "LlamaForCausalLM",
        lambda f: edit(f, rope_parameters={"rope_type": "longrope", "short_factor": 2.0}),
        "short_factor of .*config.json must be a list of numbers, got 2.0; correct the file",
    ),
    "a factor that is no number": (
        "LlamaForCausalLM",
        lambda f: edit(f, rope_parameters={"rope_type": "linear", "factor": "8"}),
        "factor of .*config.json must be a number, got '8'; correct the file",
    ),
    "a factor of 0": (
        "MistralForCausalLM",
        lambda f: edit(f, rope_scaling={"rope_type": "yarn", "factor": 0.0}, rope_parameters=None),
        "the rotary positions in .*config.json make no rotation .factor must be positive for YaRNScaling",
    ),
    "a factor whose angles overflow": (
        "LlamaForCausalLM",
        lambda f: edit(f, rope_parameters={"rope_type": "linear", "factor": 1e-300}),
        "make no rotation .angles and amplitudes must be finite for Rotary",
    ),
    "amplitudes that overflow": (
        "Qwen3ForCausalLM",
        lambda f: edit(
            f, rope_parameters={"rope_type": "yarn", "factor": 2.0, "mscale": 1e308, "mscale_all_dim": 1e-9}
        ),
        "make no rotation .*finite",
    ),
    "more key heads than can be counted": (
        "LlamaForCausalLM",
        lambda f: edit(f, num_key_value_heads=10**12),
        "heads must be a multiple of kv_heads",
    ),
    "a scaling that Phi-3 does not have": (
        "Phi3ForCausalLM",
        lambda f: edit(f, rope_parameters={"rope_type": "linear", "factor": 2.0}),
        "scales rotary positions by 'linear', and a Phi-3 has default and longrope only; take another checkpoint",
    ),
    "layers of no kind": (
        "Gemma3ForCausalLM",
        lambda f: edit(f, layer_types=["chunked_attention"] * 3),
        "layer_types of .*config.json must be 'sliding_attention' or 'full_attention' for "
        "each of 3 layers; correct the file",
    ),
    "rotations of a layer that are no object": (
        "Gemma3ForCausalLM",
        lambda f: edit(f, rope_parameters={"full_attention": 3, "sliding_attention": {}}),
        "rope_parameters of .*config.json must hold objects; correct the file",
    ),
    "a Gemma 3 that attends to both sides": (
        "Gemma3ForCausalLM",
        lambda f: edit(f, use_bidirectional_attention=True),
        "use_bidirectional_attention=True, and regard supports use_bidirectional_attention=False only; take another",
    ),
    "a cap of logits": (
        "Gemma3ForCausalLM",
        lambda f: edit(f, final_logit_softcapping=30.0),
        "final_logit_softcapping=30.0, and regard supports final_logit_softcapping=None only; take another checkpoint",
    ),
    "a scalar below 0": (
        "Gemma3ForCausalLM",
        lambda f: edit(f, query_pre_attn_scalar=-4),
        "query_pre_attn_scalar of .*config.json must be a positive number, got -4.0; correct the file",
    ),
    "an image of three sides": (
        "ViTModel",
        lambda f: edit(f, image_size=[6, 6, 6]),
        "image_size of .*config.json must be one or two numbers; correct the file",
    ),
    "no weights": (
        "BertModel",
        lambda f: (f / "model.safetensors").unlink(),
        "holds no weights: neither model.safetensors nor pytorch_model.bin",
    ),
    "damaged weights": (
        "BertModel",
        lambda f: (f / "model.safetensors").write_bytes(b"x" * 9),
        "is damaged or no safetensors file",
    ),
    "a missing tensor": (
        "GPT2LMHeadModel",
        lambda f: rewrite(f, lambda name, t: {} if "h.1.mlp.c_fc.weight" in name else {name: t}),
        r"has no tensor 'transformer.h.1.mlp.c_fc.weight', of shape \(12, 48\) by its config.json; save the model",
    ),
    "a misshapen tensor": (
        "BertModel",
        lambda f: rewrite(f, lambda name, t: {name: t[:5] if "word" in name else t}),
        r"tensor 'bert.embeddings.word_embeddings.weight' of .* has shape \(5, 12\), and its config.json asks for "
        r"\(23, 12\)",
    ),
    "sizes that no memory has": ("BertModel", lambda f: edit(f, vocab_size=10**12), r"asks for \(1000000000000, 12\)"),
    "a quantized tensor": (
        "BertModel",
        lambda f: rewrite(f, lambda name, t: {name: t.to(torch.int8) if "word" in name else t}),
        "has the type torch.int8, and regard reads float64, float32, float16 and bfloat16; take a checkpoint that",
    ),
    "quantized weights": (
        "LlamaForCausalLM",
        lambda f: edit(f, quantization_config={"quant_method": "fp8"}),
        "has a quantization_config, and regard reads weights that are not quantized; take the checkpoint that",
    ),
    "a layer beyond the config": (
        "GPT2LMHeadModel",
        lambda f: edit(f, n_layer=1),
        "has n_layer=1, and the weights beside it have 2 layers, up to transformer.h.1; restore the config.json",
    ),
    "layers that no file has": (
        "BertModel",
        lambda f: edit(f, num_hidden_layers=10**8),
        "has num_hidden_layers=100000000, and the weights beside it have 2 layers, up to bert.encoder.layer.1",
    ),
    "layers of a decoder that no file has": (
        "MarianMTModel",
        lambda f: edit(f, decoder_layers=10**9),
        "has decoder_layers=1000000000, and the weights beside it have 1 layers, up to model.decoder.layers.0",
    ),
    "positions that no memory has": (
        "MarianMTModel",
        lambda f: edit(f, max_position_embeddings=10**15),
        "the model of .* takes at least .* of memory, and .* are available; take a smaller checkpoint",
    ),
    "a size of too many digits": (
        "BertModel",
        lambda f: edit(f, hidden_size=3 * 10**30),
        r"the sizes in .*config.json make no model \(.*\); restore the config.json of these weights",
    ),
    "a negative eps": (
        "LlamaForCausalLM",
        lambda f: edit(f, rms_norm_eps=-1.0),
        "rms_norm_eps of .*config.json must be 0 or more, got -1.0; correct the file",
    ),
    "an eps that is no number": (
        "BertModel",
        lambda f: edit(f, layer_norm_eps=float("nan")),
        "layer_norm_eps of .*config.json must be a finite number, got nan; correct the file",
    ),
    "a number beyond floating point": (
        "BertModel",
        lambda f: edit(f, layer_norm_eps=10**400),
        "layer_norm_eps of .*config.json must be a finite number, got inf; correct the file",
    ),
    "a pointer of Git LFS": (
        "BertModel",
        lambda f: (f / "model.safetensors").write_text(POINTER),
        "model.safetensors is a pointer of Git LFS instead of the file itself; run `git lfs pull` where it was cloned",
    ),
    "a config that is a pointer of Git LFS": (
        "BertModel",
        lambda f: (f / "config.json").write_text(POINTER),
        "config.json is a pointer of Git LFS instead of the file itself",
    ),
    "tables that differ": (
        "GPT2LMHeadModel",
        lambda f: rewrite(f, lambda name, t: {name: t, "lm_head.weight": t + 1} if "wte" in name else {name: t}),
        "'lm_head.weight' and 'transformer.wte.weight' of .* must be one tensor, .*; take a checkpoint with tied",
    ),
    "a part outside the folder": (
        "BertModel",
        lambda f: (
            (f / "model.safetensors").rename(f.with_name("x.safetensors")),
            (f / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}})),
        ),
        "names the file '../x.safetensors', which is not in its folder",
    ),
    "an index without a map": (
        "BertModel",
        lambda f: (
            (f / "model.safetensors").unlink(),
            (f / "pytorch_model.bin.index.json").write_text("{}"),
        ),
        "has no weight_map, which names the file of each tensor",
    ),
}


def pickled(folder: Path, content: object) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")


BROKEN |= {
    "a pickle that holds code": (
        "BertModel",
        lambda f: pickled(f, {"weight": torch.zeros(2), "more": Runs()}),
        r"holds the Python object \S*exec, and unpickling it could run code; .*save its tensors as safetensors",
    ),
    "a pickle that holds a namespace": (
        "BertModel",
        lambda f: pickled(f, {"weight": torch.zeros(2), "more": Namespace(a=1)}),
        "holds the Python object argparse.Namespace, and unpickling it could run code",
    ),
    "a pickle of no tensors": ("BertModel", lambda f: pickled(f, {"a": 1}), "must hold a dict of tensors by name"),
    "a pickle with numbers for names": (
        "BertModel",
        lambda f: pickled(f, {1: torch.zeros(2)}),
        "a dict of tensors by name",
    ),
    "a file that is no pickle": (
        "BertModel",
        lambda f: (pickled(f, {}), (f / "pytorch_model.bin").write_bytes(b"nothing")),
        "pytorch_model.bin holds more than tensors, and unpickling it could run code; .*save its tensors as",
    ),
    **{
        f"a pickle with {kind}": (
            "GPT2LMHeadModel",
            lambda f, tensor=tensor: pickled(f, {"transformer.wte.weight": tensor, "lm_head.weight": tensor}),
            r"tensor 'transformer.wte.weight' of .*bin is sparse, quantized or without its numbers; save it as",
        )
        for kind, tensor in {
            "a sparse tensor": torch.eye(3).to_sparse(),
            "a tensor of meta": torch.zeros(3, 3, device="meta"),
            "a tensor of one number": torch.zeros(1, 1).expand(10**6, 10**6),
        }.items()
    },
    "a pickle that was cut off": (
        "BertModel",
        lambda f: (pickled(f, {"weight": torch.zeros(50)}), os.truncate(f / "pytorch_model.bin", 200)),
        r"pytorch_model.bin is damaged or no checkpoint of torch \(.*\); restore it",
    ),
}


@for_each("case", BROKEN)
def test_what_is_wrong_is_told_in_one_sentence(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, breaks, message = BROKEN[case]
    saved(name, tmp_path / "model")
    breaks(tmp_path / "model")
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        load_pretrained(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    sizes = {"width": 12, "layers": 1, "heads": 3}
    told = {
        "a GPT2 with positions='rotary' cannot be saved .*, which has positions='learned' only": GPT2(
            V, positions="rotary", **sizes
        ),
        r"a GPT2 with Attention\(.*in its heads cannot be saved": GPT2(V, attention="additive", **sizes),
        r"a BERT with norm='pre' cannot be saved": BERT(V, norm="pre", **sizes),
        "a Transformer with norm='post' and learned positions cannot be saved .*: Marian's positions are sinusoids, "
        "and BART has a norm behind the embeddings; train it with norm='pre' or": Transformer(
            V, V, norm="post", positions="learned", **sizes
        ),
        "a Transformer with positions='alibi' cannot be saved .*, whose translators add sinusoids or": Transformer(
            V, V, positions="alibi", **sizes
        ),
        "a Transformer with scale=3 cannot be saved .*, whose translators multiply embeddings by 1 or": Transformer(
            V, V, scale=3.0, **sizes
        ),
        "a Transformer with source_size=None cannot be saved .*, whose translators read tokens; save": Transformer(
            None, V, **sizes
        ),
        "the activation .* has no name in transformers' layout": GPT2(V, activation=nn.Mish(), **sizes),
        "a Llama with bias=True cannot be saved": Llama(V, window=4, bias=True, **sizes),
        r"a Llama with rotate=Rotary\(4, .*'neighbours'\) cannot be saved .*, which has no such rotation; save": Llama(
            V, rotate=Rotary(4, pairs="neighbours"), **sizes
        ),
        r"a Llama with rotate=Rotary\(4, .*length=9\)\) cannot be saved .*, which has no such rotation; save": Llama(
            V, rotate=Rotary(4, scaling=DynamicNTKScaling(2.0, 5, length=9)), **sizes
        ),
        r"a Gemma3 with windows of \[3, 5\] tokens cannot be saved .*; build it with windows of 5": Gemma3(
            V, **{**sizes, "layers": 3}, windows=[3, None, 5]
        ),
        r"a Gemma3 with scale=0.3 cannot be saved .*; build it with scale=11 \*\* -0.5": Gemma3(V, scale=0.3, **sizes),
    }
    for message, model in told.items():
        with pytest.raises(ValueError, match=f"(?s){message}"):
            save_pretrained(model, tmp_path / "out")
    with pytest.raises(
        TypeError, match="model must be one of BERT, .* to be saved in transformers' layout, got Linear"
    ):
        save_pretrained(nn.Linear(2, 2), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@torch.no_grad()
def test_a_fixed_base_is_saved_as_that_base(tmp_path: Path) -> None:
    """NTK-aware scaling has no name in transformers, and needs none."""
    model = Llama(V, width=12, layers=1, heads=1, rotate=Rotary(12, scaling=NTKScaling(3.0))).eval()
    save_pretrained(model, tmp_path)
    close(load_pretrained(tmp_path).model(tokens()), model(tokens()))


@torch.no_grad()
def test_a_small_vocabulary_needs_no_padding_of_transformers(tmp_path: Path) -> None:
    """Phi3Config of transformers pads with row 32,000 unless told otherwise; a given row is kept."""
    model = Phi3(11, width=12, layers=1, heads=3, feed=7).eval()
    text = torch.tensor([[3, 1, 4]])
    for config, padding in (({}, None), ({"pad_token_id": 5}, 5)):
        save_pretrained(model, tmp_path, config)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        assert theirs.config.pad_token_id == padding
        close(model(text), theirs(text).logits)
