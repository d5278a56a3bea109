"""Bad input to commands on released folders: one sentence that says how to fix it, exit code 2, no partial output."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.for_each import for_each
from tests.tasks.pretrained.folders import CASES, Released, write_image

from regard.cli.main import main
from regard.tasks.registry import TASKS

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")


def edit(folder: Path, name: str = "config.json", **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


class _Code:
    def __reduce__(self) -> Any:
        return (print, ("this must never be printed",))


def pickle_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"bert.embeddings": _Code()}))


def cut_vocabulary(folder: Path) -> None:
    """The embedding is shorter than the tokenizer."""
    edit(folder, vocab_size=20)
    change_tensors(
        folder, lambda tensors: [tensors.update({k: t[:20].clone()}) for k, t in tensors.items() if len(t) == 23]
    )


def drop_mask(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[GAP]"))


def cut_channels(folder: Path) -> None:
    """Patches have two channels."""
    edit(folder, num_channels=2)
    name = "vit.embeddings.patch_embeddings.projection.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name][:, :2].clone()}))


MASKED, GENERATED = ("the [MASK] sat",), ("the cat",)
# architecture, what is done to its folder, words behind it, and the sentence
FOLDERS: dict[str, tuple[str, Callable[[Path], object], tuple[str, ...], str]] = {
    "no config": (
        "BertForMaskedLM",
        lambda f: (f / "config.json").unlink(),
        MASKED,
        "holds neither run.json, of a training, nor config.json, of a model in transformers' layout; name the folder",
    ),
    "an unsupported architecture": (
        "BertForMaskedLM",
        lambda f: edit(f, architectures=["T5ForConditionalGeneration"]),
        MASKED,
        "names the architecture 'T5ForConditionalGeneration', and regard loads BertModel, BertForMaskedLM, ",
    ),
    "no architecture": (
        "BertForMaskedLM",
        lambda f: edit(f, architectures=None),
        MASKED,
        'names no architecture; write "architectures": ["…"] into it, with one of ',
    ),
    "an encoder of images": (
        "ViTForImageClassification",
        lambda f: edit(f, architectures=["ViTModel"]),
        ("IMAGE",),
        "names the architecture 'ViTModel', which no task predicts with; load its model by regard.load_pretrained, or ",
    ),
    "a regression": (
        "BertForSequenceClassification",
        lambda f: edit(f, problem_type="regression"),
        ("the cat",),
        "describes a model of 3 outputs for regression, and regard predicts one of several classes; read it by",
    ),
    "a missing tensor": (
        "BertForMaskedLM",
        lambda f: change_tensors(f, lambda tensors: tensors.pop("bert.encoder.layer.1.output.dense.bias")),
        MASKED,
        "has no tensor 'bert.encoder.layer.1.output.dense.bias', of shape (12) by its config.json; save the model",
    ),
    "a misshapen tensor": (
        "GPT2LMHeadModel",
        lambda f: change_tensors(f, lambda tensors: tensors.update({"transformer.wpe.weight": torch.zeros(7, 12)})),
        GENERATED,
        "tensor 'transformer.wpe.weight' of ",
    ),
    "a pickle that holds code": (
        "BertForMaskedLM",
        pickle_code,
        MASKED,
        "and unpickling it could run code; load it where you trust it, and save its tensors as safetensors",
    ),
    "a tokenizer that does not fit": (
        "BertForMaskedLM",
        cut_vocabulary,
        MASKED,
        "has ids up to 22, but the embedding has 20 rows; restore the tokenizer that the model was trained with",
    ),
    "a tokenizer without a mask": (
        "BertForMaskedLM",
        drop_mask,
        MASKED,
        "the tokenizer has no mask token, [MASK] or <mask>; restore the tokenizer of the model",
    ),
    "images of two channels": (
        "ViTForImageClassification",
        cut_channels,
        ("IMAGE",),
        "reads images of 2 channels, and files have 1 or 3; name a folder of another model",
    ),
    "no tokenizer": (
        "GPT2LMHeadModel",
        lambda f: (f / "tokenizer.json").unlink(),
        GENERATED,
        "holds no tokenizer: neither tokenizer.json nor vocab.txt nor vocab.json with merges.txt; save it there",
    ),
    "no weights": (
        "GPT2LMHeadModel",
        lambda f: (f / "model.safetensors").unlink(),
        GENERATED,
        "holds no weights: neither model.safetensors nor pytorch_model.bin, nor their index; save the model there",
    ),
    "empty weights": (
        "GPT2LMHeadModel",
        lambda f: (f / "model.safetensors").write_bytes(b""),
        GENERATED,
        "model.safetensors",
    ),
    "an empty config": (
        "GPT2LMHeadModel",
        lambda f: (f / "config.json").write_bytes(b""),
        GENERATED,
        "config.json is no JSON",
    ),
    "an end that is no id": (
        "GPT2LMHeadModel",
        lambda f: edit(f, "generation_config.json", eos_token_id="end"),
        GENERATED,
        "must be an id or a list of ids, got 'end'; correct it",
    ),
    "no image processor": (
        "ViTForImageClassification",
        lambda f: (f / "preprocessor_config.json").unlink(),
        ("IMAGE",),
        "holds no preprocessor_config.json, which says how its model reads images; save it there",
    ),
    "a crop": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", do_center_crop=True),
        ("IMAGE",),
        "has do_center_crop=true, and regard resizes, rescales and normalizes only; take another",
    ),
    "another size of images": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", size={"shortest_edge": 12}),
        ("IMAGE",),
        "must resize images to the 12 × 12 pixels (height × width) of its config.json, got do_resize=True and size=",
    ),
    "an unknown filter": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", resample=9),
        ("IMAGE",),
        "has resample=9, and the filters are ",
    ),
    "a list of filters": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", resample=[2]),
        ("IMAGE",),
        "has resample=[2], and the filters are ",
    ),
    "a mean of another number of channels": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", image_mean=[0.5]),
        ("IMAGE",),
        "must be 3 numbers, one per channel, got [0.5]; correct it",
    ),
    "a factor that is no number": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", rescale_factor="much"),
        ("IMAGE",),
        "must be a number, got 'much'; correct it",
    ),
    "a standard deviation of 0": (
        "ViTForImageClassification",
        lambda f: edit(f, "preprocessor_config.json", image_std=[0, 1, 1]),
        ("IMAGE",),
        "has image_std=[0, 1, 1], and none of it may be 0; correct it",
    ),
    "classes without names": (
        "ViTForImageClassification",
        lambda f: edit(f, id2label=dict.fromkeys("01237", "cat"), num_labels=5),
        ("IMAGE",),
        "must name the classes 0 to 4, each once; correct the file",
    ),
}


def sentence(folder: Path, words: tuple[str, ...], verb: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of a command, which prints nothing else."""
    capsys.readouterr()
    given = [str(folder / "random.png") if word == "IMAGE" else word for word in words]
    assert main([verb, str(folder), *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("regard: ")
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


@for_each("problem", FOLDERS)
def test_a_bad_folder_is_refused(problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    architecture, spoil, words, message = FOLDERS[problem]
    CASES[architecture].make(tmp_path)
    write_image(tmp_path / "random.png")
    spoil(tmp_path)
    for command in ("predict", "serve") if TASKS[CASES[architecture].task].is_served else ("predict",):
        assert message in sentence(tmp_path, words if command == "predict" else (), command, capsys)


LONG = "the " * 60
INPUTS: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "a prompt longer than the position table": (
        "GPT2LMHeadModel",
        "generate",
        (LONG,),
        "tokens, and this model has 40 positions; shorten it",
    ),
    "several prompts, one of them too long": (
        "GPT2LMHeadModel",
        "generate",
        ("a cat", LONG),
        "tokens, and this model has 40 positions; shorten it",
    ),
    "a source longer than the position table": (
        "MarianMTModel",
        "translate",
        (LONG,),
        "line 1 has 60 tokens, but this model knows 39 positions; shorten it\n",
    ),
    "a text without the mask token": (
        "BertForMaskedLM",
        "predict",
        ("the cat sat",),
        "the text 'the cat sat' has no [MASK]; mark the token to guess: \"the [MASK] sat\"",
    ),
    "a masked text that is too long": (
        "BertForMaskedLM",
        "predict",
        (LONG + "[MASK]",),
        "has 63 tokens, begin and end included, and this model reads 13; shorten it",
    ),
    "a coverage penalty": (
        "MarianMTModel",
        "translate",
        ("the cat", "--coverage", "0.2"),
        "is for runs of regard, and released translators search by the rules of transformers' generate",
    ),
    "the weights of a run": (
        "MarianMTModel",
        "translate",
        ("the cat", "--weights", "last"),
        "MarianMTModel is none; leave it out",
    ),
    "no data to evaluate on": (
        "MarianMTModel",
        "evaluate",
        (),
        "is a released model, which has no data of its own; name files with --test",
    ),
    "no evaluation": (
        "ViTForImageClassification",
        "evaluate",
        (),
        "is a released model of classify-image, which only a run is evaluated for; use predict",
    ),
    "no images to attack": (
        "ViTForImageClassification",
        "attack",
        (),
        "is a released model, which has no held-out images; attack it on your own in Python, by "
        "regard.attack(regard.load(folder), inputs, targets, attack)",
    ),
    "a text of no tokens": (
        "BertForMaskedLM",
        "evaluate",
        ("--test", "FOLDER/blank.txt"),
        "blank.txt has no token that the vocabulary knows; give other text",
    ),
    "a text of unknown tokens": (
        "BertForMaskedLM",
        "evaluate",
        ("--test", "FOLDER/unknown.txt"),
        "unknown.txt has no token that the vocabulary knows; give other text",
    ),
    "a file that is no image": (
        "ViTForImageClassification",
        "predict",
        ("FOLDER/config.json",),
        "config.json cannot be read as a picture",
    ),
    "a surrogate": (
        "BertForMaskedLM",
        "predict",
        ("the \udcff [MASK]",),
        "which holds a surrogate; decode what you read",
    ),
    "a surrogate in a prompt": ("GPT2LMHeadModel", "generate", ("the \udcff",), "which holds a surrogate; decode"),
    "a surrogate in a source": ("MarianMTModel", "translate", ("the \udcff",), "which holds a surrogate; decode"),
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Released]:
    path = tmp_path_factory.mktemp("released")
    made: dict[str, Released] = {}

    def folder(name: str) -> Released:
        if name not in made:
            made[name] = CASES[name].make(path / name)
        return made[name]

    return folder


@for_each("problem", INPUTS)
def test_a_bad_input_is_refused(
    problem: str, released: Callable[[str], Released], capsys: pytest.CaptureFixture[str]
) -> None:
    architecture, verb, words, message = INPUTS[problem]
    folder = released(architecture).folder
    (folder / "blank.txt").write_text("\u200b\n")
    (folder / "unknown.txt").write_text("nothing here\n")
    assert message in sentence(folder, tuple(word.replace("FOLDER", str(folder)) for word in words), verb, capsys)


def test_an_empty_file_is_refused(
    released: Callable[[str], Released], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_text("")
    for name in ("BertForMaskedLM", "GPT2LMHeadModel", "MarianMTModel"):
        words = ("--file", str(tmp_path / "empty.txt"))
        assert f"{tmp_path / 'empty.txt'} is empty" in sentence(released(name).folder, words, "predict", capsys)
    for name in ("GPT2LMHeadModel", "MarianMTModel"):
        words = ("--test", str(tmp_path / "empty.txt"))
        assert str(tmp_path / "empty.txt") in sentence(released(name).folder, words, "evaluate", capsys)


def test_an_empty_prompt_begins_a_text(released: Callable[[str], Released], capsys: pytest.CaptureFixture[str]) -> None:
    folder = released("GPT2LMHeadModel").folder
    assert main(["generate", str(folder), "", "--tokens", "3"]) == 0
    config = (folder / "config.json").read_text()
    generation = (folder / "generation_config.json").read_text()
    edit(folder, bos_token_id=None, eos_token_id=50256)
    edit(folder, "generation_config.json", bos_token_id=None, eos_token_id=None)
    try:
        assert "has no tokens, and this model has none that begins a text; give a prompt" in sentence(
            folder, ("", "--tokens", "3"), "generate", capsys
        )
        # nothing ends a text then
        assert main(["generate", str(folder), "the", "--tokens", "3"]) == 0
    finally:
        (folder / "config.json").write_text(config)
        (folder / "generation_config.json").write_text(generation)
