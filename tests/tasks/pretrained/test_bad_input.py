"""Bad input to commands on released folders: one sentence that says how to fix it, exit code 2, no partial output."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests.for_each import for_each
from tests.tasks.pretrained.folders import CASES, Released, write_image

from regard.cli.main import main
from regard.tasks.registry import TASKS

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")


def edit(folder: Path, name: str = "config.json", **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def drop_mask(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "[GAP]"))


def cut_channels(folder: Path) -> None:
    """Patches have two channels."""
    edit(folder, num_channels=2)
    name, tensors = "vit.embeddings.patch_embeddings.projection.weight", load_file(folder / "model.safetensors")
    save_file({**tensors, name: tensors[name][:, :2].clone()}, folder / "model.safetensors")


Spoil = Callable[[Path], object]


def processing(**values: Any) -> Spoil:
    return lambda folder: edit(folder, "preprocessor_config.json", **values)


# by architecture: changes of its folder, and the sentences; those of the loader are in tests/models/pretrained
FOLDERS: dict[str, list[tuple[Spoil, str]]] = {
    "BertForMaskedLM": [
        (
            lambda folder: (folder / "config.json").unlink(),
            "holds neither run.json, of a training, nor config.json, of",
        ),
        (
            lambda folder: edit(folder, architectures=None),
            'names no architecture; write "architectures": ["…"] into it',
        ),
        (drop_mask, "the tokenizer has no mask token, [MASK] or <mask>; restore the tokenizer of the model"),
    ],
    "BertForSequenceClassification": [
        (
            lambda folder: edit(folder, problem_type="regression"),
            "describes a model of 3 outputs for regression, and regard predicts one of several classes; read it by",
        ),
    ],
    "GPT2LMHeadModel": [
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "model.safetensors"),
        (
            lambda folder: edit(folder, "generation_config.json", eos_token_id="end"),
            "must be an id or a list of ids, got 'end'; correct it",
        ),
    ],
    "ViTForImageClassification": [
        (
            lambda folder: edit(folder, architectures=["ViTModel"]),
            "'ViTModel', which no task predicts with; load its model by regard.load_pretrained, or ",
        ),
        (cut_channels, "reads images of 2 channels, and files have 1 or 3; name a folder of another model"),
        (
            lambda folder: (folder / "preprocessor_config.json").unlink(),
            "holds no preprocessor_config.json, which says how its model reads images; save it there",
        ),
        (
            processing(do_center_crop=True),
            "has do_center_crop=true, and regard resizes, rescales and normalizes only; take another",
        ),
        (
            processing(size={"shortest_edge": 12}),
            "must resize images to the 12 × 12 pixels (height × width) of its config.json, got do_resize=True",
        ),
        (processing(resample=9), "has resample=9, and the filters are "),
        (processing(resample=[2]), "has resample=[2], and the filters are "),
        (processing(image_mean=[0.5]), "must be 3 numbers, one per channel, got [0.5]; correct it"),
        (processing(rescale_factor="much"), "must be a number, got 'much'; correct the file"),
        (processing(image_std=[0, 1, 1]), "has image_std=[0, 1, 1], and none of it may be 0; correct it"),
        (
            lambda folder: edit(folder, id2label=dict.fromkeys("01237", "cat"), num_labels=5),
            "must name the classes 0 to 4, each once; correct the file",
        ),
    ],
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


@for_each("architecture, spoil, message", [(name, *case) for name, cases in FOLDERS.items() for case in cases])
def test_a_bad_folder_is_refused(
    architecture: str, spoil: Spoil, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[architecture]
    case.make(tmp_path)
    write_image(tmp_path / "random.png")
    spoil(tmp_path)
    assert message in sentence(tmp_path, case.inputs[:1], "predict", capsys)
    if TASKS[case.task].is_served:
        assert message in sentence(tmp_path, (), "serve", capsys)


LONG = "the " * 60
# by architecture: a verb, the words behind its folder, and the sentence
INPUTS: dict[str, list[tuple[str, tuple[str, ...], str]]] = {
    "GPT2LMHeadModel": [
        ("generate", (LONG,), "tokens, and this model has 40 positions; shorten it"),
        ("generate", ("a cat", LONG), "tokens, and this model has 40 positions; shorten it"),
        ("generate", ("the \udcff",), "which holds a surrogate; decode"),
    ],
    "MarianMTModel": [
        ("translate", (LONG,), "line 1 has 60 tokens, but this model knows 39 positions; shorten it\n"),
        (
            "translate",
            ("the cat", "--coverage", "0.2"),
            "is for runs of regard, and released translators search by the rules of transformers' generate",
        ),
        ("translate", ("the cat", "--weights", "last"), "MarianMTModel is none; leave it out"),
        ("evaluate", (), "is a released model, which has no data of its own; name files with --test"),
    ],
    "BertForMaskedLM": [
        ("predict", (LONG + "[MASK]",), "has 63 tokens, begin and end included, and this model reads 13; shorten it"),
        ("predict", ("the \udcff [MASK]",), "which holds a surrogate; decode what you read"),
        ("evaluate", ("--test", "FOLDER/blank.txt"), "blank.txt has no token that the vocabulary knows; give other"),
        (
            "evaluate",
            ("--test", "FOLDER/unknown.txt"),
            "unknown.txt has no token that the vocabulary knows; give other",
        ),
    ],
    "ViTForImageClassification": [
        ("evaluate", (), "is a released model of classify-image, which only a run is evaluated for; use predict"),
        (
            "attack",
            (),
            "is a released model, which has no held-out images; attack it on your own in Python, by "
            "regard.attack(regard.load(folder), inputs, targets, attack)",
        ),
        ("predict", ("FOLDER/config.json",), "config.json cannot be read as a picture"),
    ],
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


@for_each("architecture", INPUTS)
def test_a_bad_input_is_refused(
    architecture: str, released: Callable[[str], Released], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = released(architecture).folder
    (folder / "blank.txt").write_text("\u200b\n")
    (folder / "unknown.txt").write_text("nothing here\n")
    for verb, words, message in INPUTS[architecture]:
        given = tuple(word.replace("FOLDER", str(folder)) for word in words)
        assert message in sentence(folder, given, verb, capsys), words


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
