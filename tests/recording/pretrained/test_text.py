"""record_text: folders of transformers, read while they are recorded."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from tests.recording.pretrained.models import READ, TEXT, saved, tokenizer

from regard.recording.pretrained.text import record_text


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: saved(name, root / name) for name in ("bert", "gpt2", "t5")}


def changed(folder: Path, at: Path, *missing: str, **files: str) -> Path:
    """A copy of a folder without some of its files, and with others."""
    shutil.copytree(folder, at)
    for name in missing:
        (at / name).unlink()
    for name, text in files.items():
        (at / name).write_text(text, encoding="utf-8")
    return at


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_weights_are_those_of_transformers(name: str, folders: dict[str, Path]) -> None:
    from transformers import AutoModel, AutoTokenizer

    run = record_text(folders[name], TEXT)
    assert (run.prediction, run.alignment, run.image) == (None, None, None)
    model = AutoModel.from_pretrained(folders[name], attn_implementation="eager").eval()
    ids = AutoTokenizer.from_pretrained(folders[name])(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        right = model(input_ids=ids, output_attentions=True).attentions
    assert len(run.recording) == len(right)
    for recorded_map, weights in zip(run.recording, right, strict=True):
        torch.testing.assert_close(recorded_map.weights.dense(), weights, rtol=0, atol=1e-6)
    assert run.recording.labels(run.recording[0]) == (tuple(READ), tuple(READ))
    about = run.recording.about
    assert (about["folder"], about["text"]) == (folders[name].name, TEXT)
    assert about["transformers"]


def test_a_translator(folders: dict[str, Path]) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    run = record_text(folders["t5"], TEXT)
    recording = run.recording
    assert [recorded_map.kind for recorded_map in recording] == ["self", "self", "self", "cross", "self", "cross"]
    assert all(recorded_map.verified for recorded_map in recording)
    assert recording.about["translation"] == run.prediction
    assert recording.keys == tuple(READ)
    # what transformers generates
    words = AutoTokenizer.from_pretrained(folders["t5"])
    model = AutoModelForSeq2SeqLM.from_pretrained(folders["t5"]).eval()
    read = words(TEXT, return_tensors="pt")
    ids = model.generate(read["input_ids"], max_new_tokens=128, do_sample=False)[0]
    assert run.prediction == words.decode(ids, skip_special_tokens=True)
    # one row per generated token, from the cross attention before the last
    alignment = run.alignment
    assert alignment.source == READ
    assert alignment.target == words.convert_ids_to_tokens(ids.tolist())[1:]
    assert alignment.text == (TEXT, run.prediction or "(nothing)")
    torch.testing.assert_close(alignment.weights, recording[3].weights.dense()[0].mean(0))
    assert recording.queries == (words.convert_ids_to_tokens(int(ids[0])), *alignment.target[:-1])


def test_some_layers(folders: dict[str, Path]) -> None:
    assert record_text(folders["gpt2"], TEXT, ["h.1*"]).recording.names == ("h.1.attn",)
    with pytest.raises(ValueError, match="none of embeddings in .* attended, so there is nothing to show"):
        record_text(folders["bert"], TEXT, ["embeddings"])


def test_pickled_weights_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    at = changed(folders["bert"], tmp_path / "m", "model.safetensors", **{"pytorch_model.bin": "\x80"})
    with pytest.raises(ValueError, match=r"in \.safetensors, got only pytorch_model\.bin, a pickle, which could run"):
        record_text(at, TEXT)
    (at / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"must hold weights in \.safetensors, got none; save it with save_pretrained"):
        record_text(at, TEXT)


def test_code_of_the_folder_is_not_run(folders: dict[str, Path], tmp_path: Path) -> None:
    at = changed(folders["bert"], tmp_path / "m", **{"own.py": "raise SystemExit('ran')"})
    config = json.loads((at / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (at / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"^transformers cannot load \S+ \(.*\); save the model and its tokenizer there"
    ):
        record_text(at, TEXT)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_damaged_files(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    at = changed(folders["bert"], tmp_path / "m", **{name: "{"})
    with pytest.raises(ValueError, match="save the model and its tokenizer there with save_pretrained") as raised:
        record_text(at, TEXT)
    assert "\n" not in str(raised.value)


def test_folders_without_a_model_or_a_tokenizer(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere; name one that holds a model that transformers saved"):
        record_text(tmp_path / "nowhere", TEXT)
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json, so no model that transformers saved"):
        record_text(tmp_path, TEXT)
    at = changed(folders["bert"], tmp_path / "m", "tokenizer.json")
    with pytest.raises(
        ValueError, match=r"holds no tokenizer; save it beside the model with tokenizer\.save_pretrained"
    ):
        record_text(at, TEXT)


def test_texts_that_do_not_fit(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="the text has 42 tokens, and the model of .* has 16 positions; shorten the text"
    ):
        record_text(folders["bert"], "the " * 40)
    bare = json.loads(tokenizer().backend_tokenizer.to_str()) | {"post_processor": None}
    at = changed(folders["gpt2"], tmp_path / "m", **{"tokenizer.json": json.dumps(bare)})
    with pytest.raises(ValueError, match="the text has no tokens, so there is no attention to record; give a sentence"):
        record_text(at, "")


def test_without_transformers(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="which must be installed: pip install transformers"):
        record_text(folders["bert"], TEXT)
