"""regard record: models of transformers and runs are recorded while they read an input."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.conftest import Refused, Regard, train
from tests.for_each import for_each
from tests.recording.pretrained.models import READ, TEXT, saved, tokenizer

from regard.recording.recording import Recording


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: saved(name, root / name) for name in ("bert", "gpt2", "t5")}


@pytest.fixture(scope="session")
def heads(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a Transformer."""
    run = tmp_path_factory.mktemp("heads") / "run"
    options = "--model transformer --tokens words --width 6 --heads 2 --layers 2 --steps 1 --batch 96 --threads 1"
    return train(run, "translate", options, "--train", pairs)


def eager(folder: Path) -> list[torch.Tensor]:
    """The weights as transformers gives them, when it is told to form them."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    read = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    with torch.no_grad():
        return list(model(input_ids=read["input_ids"], output_attentions=True).attentions)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_what_is_recorded_is_what_the_model_uses(
    name: str, regard: Regard, folders: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    ran = regard("record", folders[name], TEXT, "--out", path)
    assert ran.code == 0, ran.err
    assert ran.out == ""
    assert ran.err == (
        "regard: 2 maps of 2 modules, each checked against what the model computed\n"
        f"regard: the recording is in {path}; view it: regard view {path}\n"
    )
    tape = Recording.load(path)
    assert [list(pieces) for pieces in tape.labels(tape[0])] == [READ, READ]
    assert tape.about["text"] == TEXT
    right = eager(folders[name])
    assert len(tape) == len(right)
    for one, weights in zip(tape, right, strict=True):
        torch.testing.assert_close(one.weights.dense(), weights, rtol=0, atol=1e-6)
    # by the same weights, what the papers make of them
    mixed = torch.stack(right).mean(2, keepdim=True)
    for way in (tape.mean("maps")[0].weights.dense(), tape.mean("heads").mean("layers")[0].weights.dense()):
        torch.testing.assert_close(way, mixed.mean(0), rtol=0, atol=1e-6)
    through = torch.eye(len(READ)).expand(1, 1, -1, -1)
    for weights in mixed:
        through = (0.5 * weights + 0.5 * torch.eye(len(READ))) @ through
    torch.testing.assert_close(tape.rollout()[0].weights.dense(), through, rtol=0, atol=1e-6)


def test_without_a_file_it_is_shown(regard: Regard, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ran = regard("record", folders["bert"], TEXT)
    assert ran.code == 0, ran.err
    assert "encoder.layer.1.attention.self" in ran.out
    assert "##happi" in ran.out
    assert "UNVERIFIED" not in ran.out


def test_a_model_that_translates(regard: Regard, folders: dict[str, Path], tmp_path: Path) -> None:
    ran = regard("record", folders["t5"], TEXT, "--out", tmp_path / "a.safetensors", "--alignment", tmp_path / "a.txt")
    assert ran.code == 0, ran.err
    assert ran.out.count("\n") == 1
    tape = Recording.load(tmp_path / "a.safetensors")
    assert tape.about["translation"].replace("\n", " ") + "\n" == ran.out
    assert [one.kind for one in tape] == ["self", "self", "self", "cross", "self", "cross"]
    assert all(one.verified for one in tape)
    assert [tape.labels(one)[1] for one in tape[:1]] == [tuple(READ)]
    rows, columns = tape.labels(tape[3])
    assert rows == tape.queries
    assert columns == tuple(READ)
    assert f"source       {TEXT}\n" in (tmp_path / "a.txt").read_text(encoding="utf-8")


def test_some_layers(regard: Regard, folders: dict[str, Path], tmp_path: Path) -> None:
    ran = regard("record", folders["gpt2"], TEXT, "--layers", "h.1*", "--out", tmp_path / "a.npz")
    assert ran.code == 0, ran.err
    with np.load(tmp_path / "a.npz") as held:
        assert held["names"].tolist() == ["h.1.attn"]
        assert held["0"].shape == (1, 3, len(READ), len(READ))


def test_words(regard: Regard, folders: dict[str, Path], tmp_path: Path) -> None:
    ran = regard("record", folders["bert"], TEXT, "--words", "--out", tmp_path / "a.npz")
    assert ran.code == 0, ran.err
    with np.load(tmp_path / "a.npz") as held:
        assert " ".join(held["queries"]) == "[CLS] the cats sat unhappily on the mat . [SEP]"
        np.testing.assert_allclose(held["0"].sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("suffix", [".html", ".png", ".txt"])
def test_pictures(suffix: str, regard: Regard, folders: dict[str, Path], tmp_path: Path) -> None:
    one, two = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (one, two):
        assert regard("record", folders["bert"], "the cat", "--out", path).code == 0
    assert one.read_bytes() == two.read_bytes()
    if suffix == ".txt":
        assert "the" in one.read_text(encoding="utf-8")


def test_a_training(regard: Regard, trained: Path, tmp_path: Path) -> None:
    said = regard("translate", trained, "a b c").out
    ran = regard("record", trained, "a b c", "--out", tmp_path / "a.safetensors", "--alignment", tmp_path / "a.html")
    assert (ran.code, ran.out) == (0, said)
    tape = Recording.load(tmp_path / "a.safetensors")
    assert [one.kind for one in tape] == ["alignment"]
    assert tape[0].verified
    assert tape.keys[:3] == ("a", "b", "c")
    assert tape.about["translation"] == said.rstrip("\n")


def test_a_training_of_a_transformer(regard: Regard, heads: Path, tmp_path: Path) -> None:
    from regard.decoding.search import Beam
    from regard.tasks.loading import load

    ran = regard("record", heads, "a b c", "--weights", "last", "--out", tmp_path / "a.safetensors")
    assert ran.code == 0, ran.err
    tape = Recording.load(tmp_path / "a.safetensors")
    assert {one.kind for one in tape} == {"self", "cross"}
    assert all(one.verified and one.shape[:2] == (1, 2) for one in tape)
    # the alignment is the mean over the heads of the layer before the last
    translator: Any = load(heads, weights="last", device="cpu")
    ((translation,),) = translator.translate(["a b c"], Beam(5))
    (aligned,) = translator.align(["a b c"], [translation])
    cross = tape.select(kind="cross").mean("heads")[0].weights.dense()[0, 0]
    torch.testing.assert_close(cross, aligned.weights, rtol=0, atol=1e-6)
    # the rows of a decoder with self-attention are the tokens that it has read
    assert len(tape.queries) == len(aligned.target)
    assert tape.queries[1:] == tuple(aligned.target[:-1])


def broken(folders: dict[str, Path], at: Path, *names: str, **files: str) -> Path:
    """A copy of a model without some of its files, and with others."""
    shutil.copytree(folders["bert"], at)
    for name in names:
        (at / name).unlink()
    for name, text in files.items():
        (at / name).write_text(text, encoding="utf-8")
    return at


def test_pickled_weights_are_refused(refused: Refused, folders: dict[str, Path], tmp_path: Path) -> None:
    at = broken(folders, tmp_path / "m", "model.safetensors", **{"pytorch_model.bin": "\x80"})
    assert refused("record", at, TEXT) == (
        f"{at} must hold weights in .safetensors, got only pytorch_model.bin, a pickle, which could run code; save it "
        "with save_pretrained"
    )
    (at / "pytorch_model.bin").unlink()
    assert "must hold weights in .safetensors, got none" in refused("record", at, TEXT)


def test_code_of_the_folder_is_not_run(refused: Refused, folders: dict[str, Path], tmp_path: Path) -> None:
    at = broken(folders, tmp_path / "m", **{"own.py": "raise SystemExit('ran')"})
    told = json.loads((at / "config.json").read_text(encoding="utf-8"))
    told |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (at / "config.json").write_text(json.dumps(told), encoding="utf-8")
    assert refused("record", at, TEXT).startswith(f"transformers cannot load {at} (")


@for_each(("name", "content"), [("config.json", "{"), ("model.safetensors", "damaged")])
def test_folders_that_cannot_be_read(
    name: str, content: str, refused: Refused, folders: dict[str, Path], tmp_path: Path
) -> None:
    sentence = refused("record", broken(folders, tmp_path / "m", **{name: content}), TEXT)
    assert sentence.startswith("transformers cannot load")
    assert "save the model and its tokenizer there with save_pretrained" in sentence


def test_a_folder_without_a_tokenizer(refused: Refused, folders: dict[str, Path], tmp_path: Path) -> None:
    at = broken(folders, tmp_path / "m", "tokenizer.json")
    said = f"{at} holds no tokenizer; save it beside the model with tokenizer.save_pretrained"
    assert refused("record", at, TEXT) == said


def test_without_transformers(refused: Refused, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    sentence = refused("record", folders["bert"], TEXT)
    assert "holds a model of transformers, which must be installed: pip install transformers" in sentence


IMAGE = """reads text, and three.PNG is the file of an image; give a sentence, or name a model that reads images. To \
record the name as text, add a space: 'three.PNG '"""


@for_each(
    ("words", "sentence"),
    {
        "nowhere a": "there is no folder nowhere; name one that holds a model, or a run",
        "empty a": "empty holds neither config.json, a model that transformers saved, nor run.json, a run",
        f"bert '{'the ' * 40}'": "the text has 42 tokens, and the model of ",
        "bert a --weights last": "--weights last is for the folder of a run, and bert is not one; leave it out",
        "bert a --layers encodr.*": "encodr.*",
        "bert a --layers embeddings": "none of embeddings in ",
        "bert a --alignment x.html": "--alignment needs a model that translates by attention to the source, and bert ",
        "bert a --out x.doc": "unknown suffix of --out '.doc'; known are: .safetensors, .html,",
        "bert a --alignment x.npz": "unknown suffix of --alignment '.npz'",
        "bert three.PNG": f"bert {IMAGE}",
        "trained three.PNG": f"trained {IMAGE}",
        "trained ' '": "the text is empty, so there is nothing to record; give a sentence",
        "trained 'a b' --weights average": "has no average.safetensors yet; try --weights best",
        "unattended 'a b'": "a recording needs attention, and this model has none (a decoder without attention); leave",
    }.items(),
)
def test_wrong_input_is_one_sentence(
    words: str,
    sentence: str,
    refused: Refused,
    folders: dict[str, Path],
    trained: Path,
    unattended: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("three.PNG").touch()
    Path("empty").mkdir()
    for name, folder in {"bert": folders["bert"], "trained": trained, "unattended": unattended}.items():
        Path(name).symlink_to(folder)
    assert sentence in refused("record", *shlex.split(words))


def test_what_does_not_fit_into_memory(
    refused: Refused, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("the budget of 2 GB will not do")

    monkeypatch.setattr("regard.recording.run.record", full)
    said = "the budget of 2 GB will not do; a shorter text, a smaller image or --layers needs less memory"
    assert refused("record", folders["bert"], TEXT) == said


def test_a_text_without_tokens(refused: Refused, tmp_path: Path) -> None:
    bare = saved("gpt2", tmp_path / "m")
    told = json.loads(tokenizer().backend_tokenizer.to_str())
    told["post_processor"] = None
    (bare / "tokenizer.json").write_text(json.dumps(told), encoding="utf-8")
    assert refused("record", bare, "") == "the text has no tokens, so there is no attention to record; give a sentence"
