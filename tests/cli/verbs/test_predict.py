"""regard predict: inputs of other kinds than text. Its options and outputs are tested with the tasks."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Pipe, Refused, Regard
from tests.for_each import for_each

from regard.common.input_kind import InputKind
from regard.tasks.translate.options import Translate


@for_each(
    ("args", "sentence"),
    [
        ([], "name an input, or several, behind the run: each is one image"),
        (["--file", "lines.txt"], "--file lines.txt is for lines of text; name each image behind the run"),
        (["a.png", "--picture", "a.doc"], "unknown suffix of --picture '.doc'; known are: .html, .png, .svg, .pdf"),
    ],
)
def test_wrong_input_is_one_sentence(
    args: list[str], sentence: str, refused: Refused, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translate, "input_kind", InputKind.IMAGE)
    assert refused("predict", trained, *args).startswith(sentence)


def test_an_output_stands_behind_its_image(regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = regard("predict", trained, "a b", "c d").out.splitlines()
    monkeypatch.setattr(Translate, "input_kind", InputKind.IMAGE)
    assert regard("predict", trained, "a b", "c d").out == f"a b\t{outputs[0]}\nc d\t{outputs[1]}\n"
    values = json.loads(regard("predict", trained, "a b", "--json").out)
    assert values["source"] == "a b"


def test_inputs_are_not_overwritten(
    refused: Refused, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "a.png"
    image.write_bytes(b"an image")
    monkeypatch.setattr(Translate, "input_kind", InputKind.IMAGE)
    sentence = f"--picture {image} is an input and would be written over; name another file"
    assert refused("predict", trained, image, "--picture", image) == sentence
    assert image.read_bytes() == b"an image"


def test_a_pipe_without_a_line_is_named(regard: Regard, trained: Path, pipe: Pipe) -> None:
    for args in (["-"], []):
        pipe(b"")
        sentence = "regard: there is no line in stdin, so nothing was predicted\n"
        assert regard("predict", trained, *args) == (0, "", sentence)
