"""Labelled texts: three formats give the same texts, and errors name file and line."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tests.for_each import for_each

from regard.data.text.labelled import LabelledTexts, read_labelled

TEXTS = ["a quick fox", "zwei  Füchse", "no fox, a\u2028dog", "the fox: «là»", "{fox}"]
LABELS = ["one", "two", "none", "one", "10"]
FORMATS = {
    "plain.txt": "".join(f"{label} {text}\n" for label, text in zip(LABELS, TEXTS, strict=True)),
    "tabs.txt": "".join(f"{label}\t{text}\n" for label, text in zip(LABELS, TEXTS, strict=True)),
    "windows.tsv": "\ufeff" + "".join(f"{label}\t{text}\r\n" for label, text in zip(LABELS, TEXTS, strict=True)),
    "header.tsv": "id\tText\tLABEL\n" + "".join(f"7\t{t}\t{label}\n" for label, t in zip(LABELS, TEXTS, strict=True)),
    "lines.jsonl": "".join(
        json.dumps({"text": text, "more": [1], "label": int(label) if label.isdigit() else label}) + "\n"
        for label, text in zip(LABELS, TEXTS, strict=True)
    ),
    "unnamed": "".join(json.dumps({"label": a, "text": b}) + "\n" for a, b in zip(LABELS, TEXTS, strict=True)),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_texts(name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / (name + ".gz" * packed)
    data = FORMATS[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    read = read_labelled(path)
    assert list(read.texts) == TEXTS
    assert read.classes == ("10", "none", "one", "two")
    assert [read.classes[n] for n in read.labels] == LABELS
    assert read.labels.dtype == np.int64


def test_classes_of_a_model_number_the_labels_of_another_file(tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text("b\ttext\nc\tmore text\n")
    read = read_labelled(path, classes=("c", "d", "b"))
    assert read.classes == ("c", "d", "b")
    assert read.labels.tolist() == [2, 0]
    with pytest.raises(ValueError, match=r"test\.txt:2: unknown label 'c'; did you mean 'cc'\? known are: b, cc"):
        read_labelled(path, classes=("b", "cc"), refuses_unseen=True)
    assert read_labelled(path, classes=("b", "cc")).classes == ("b", "cc", "c")


def test_a_text_may_hold_tabs_where_there_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\tone\ttwo\ny\tthree\n")
    assert list(read_labelled(path).texts) == ["one\ttwo", "three"]


@for_each(
    ("name", "content", "sentence"),
    [
        ("a.txt", "x\ttext\n\nx\tmore\n", r"a\.txt:2: a line must be label, tab, text, got no tab in ''; other lines"),
        ("a.txt", "x text\ny\n", r"a\.txt:2: the text is empty, got 'y'; fill it in, or delete the line"),
        ("a.txt", "x\ttext\n\ttext\n", r"a\.txt:2: the label is empty, got '\\ttext'; fill it in"),
        ("a.jsonl", "3\n", r"a\.jsonl:1: a line must be one JSON object, got '3'; write one example per line"),
        ("a.jsonl", "x\ttext\n", r"a\.jsonl:1: a line must be one JSON object, got 'x\\ttext' \(Expecting value"),
        (
            "a.jsonl",
            "[" * 100_000,
            r"a\.jsonl:1: a line must be one JSON object, got .* \(it is nested too deeply\); fix",
        ),
        ("a.jsonl", '{"label": "x"}\n', r"a\.jsonl:1: a line must be a JSON object with the keys label and text"),
        ("a", '{"label": true, "text": "a"}\n', r"a:1: label must be a string or a whole number, got true; quote it"),
        (
            "a",
            '{"label": "x", "text": null}\n',
            r"a:1: text must be a string, got null; fill it in, or delete the line",
        ),
        (
            "a",
            '{"label": ["x", "y"], "text": "a"}\n',
            r'a:1: label must be .*, got \["x", "y"\]; choose one of the list',
        ),
        (
            "a.txt",
            '[{"label": "x",\n"text": "a"}]\n',
            r"a\.txt is a JSON array, and .*; convert it with: jq -c '\.\[\]' ",
        ),
        ("a.txt", "", r"a\.txt is empty; it must hold label, tab, text, one of each per line, or JSON lines"),
        ("a.txt", "x " + "y" * 70 + "\n" + "z" * 70 + "\n", r"a\.txt:2: the text is empty, got 'z{59}…'; fill"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(name: str, content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_labelled(tmp_path / name)


def test_a_file_that_is_not_there_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file .*nix"):
        read_labelled(tmp_path / "nix")
    # UTF-16 without its mark
    (tmp_path / "a.txt").write_bytes("x text\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"a\.txt:1: a zero byte, at place 2, is that of UTF-16 or of no text"):
        read_labelled(tmp_path / "a.txt")
    (tmp_path / "a.csv").write_bytes(b"PK\x03\x04 a workbook")
    with pytest.raises(ValueError, match=r"a\.csv is a ZIP archive or an office document, not text"):
        read_labelled(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(b"\xff\xfex\x00,")
    with pytest.raises(ValueError, match=r"a\.csv: begins as UTF-16 does, and is not \(truncated data\); save it as"):
        read_labelled(tmp_path / "a.csv")


def test_a_line_that_is_not_utf_8_is_read_as_latin_1_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x na\xefve\r\ny na\xc3\xafve\nx text\n")
    data = read_labelled(tmp_path / "a.txt")
    assert data.texts == ["naïve", "naïve", "text"]
    assert data.num_latin1 == 1
    assert data[np.array([2])].num_latin1 == 1
    (tmp_path / "a.txt").write_bytes(b"x text\n")
    assert read_labelled(tmp_path / "a.txt").num_latin1 == 0


def test_numbers_must_fit_the_texts() -> None:
    with pytest.raises(ValueError, match="labels must be one per text, got 2 for 1 texts; give as many"):
        LabelledTexts(["a"], np.array([0, 0]), ("x",))
    with pytest.raises(ValueError, match="evidence must be one per text, got 2 for 1 texts"):
        LabelledTexts(["a"], np.array([0]), ("x",), np.array([0, 0]))
    with pytest.raises(ValueError, match="labels must be from 0 to 0, got 1 for text 1; name as many classes"):
        LabelledTexts(["a", "b"], np.array([0, 1]), ("x",))


def test_json_with_parts(tmp_path: Path) -> None:
    content = {
        "oos_train": [["what is this", "oos"]],
        "train": [["pay the bill", "pay"], [" call me a cab ", "cab"]],
        "val": [["a cab please", "cab"]],
    }
    for indent in (None, 1):
        path = tmp_path / f"data{indent}.json"
        path.write_text(json.dumps(content, indent=indent))
        train = read_labelled(path)
        assert (train.classes, list(train.texts), train.labels.tolist()) == (
            ("cab", "pay"), ["pay the bill", "call me a cab"], [1, 0],
        )  # fmt: skip
        assert list(read_labelled(path, train.classes, "valid").texts) == ["a cab please"]
        with pytest.raises(
            ValueError, match=r"has no part 'test', only oos_train, train, val; name a file that has one"
        ):
            read_labelled(path, train.classes, "test")


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ([], r"the part 'train' must be a list of \[text, label\], got '\[\]'"),
        ([["a", "b"], ["a"]], r"item 2 of the part 'train' must be \[text, label\], two strings that are not empty"),
        ([["", "b"]], r"item 1 of the part 'train' must be \[text, label\]"),
    ],
)
def test_a_part_that_is_no_list_of_pairs(part: list[list[str]], message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"train": part}, indent=1))
    with pytest.raises(ValueError, match=message):
        read_labelled(path)
