"""The columns of inputs: by name, by number, and those of the training."""

from pathlib import Path

import pytest

from regard.data.spreadsheets.input_texts import InputColumn, read_inputs

NAMES = ("text", "comment")


def inputs(path: Path, content: str, recorded: str | None = None, *typed: str) -> list[str] | None:
    path.write_text(content)
    return read_inputs(path, [InputColumn(NAMES, recorded)], typed)


def test_a_header_is_no_text_where_columns_are_numbered(tmp_path: Path) -> None:
    assert inputs(tmp_path / "a.csv", "id,text\n1,good\n", None, "2") == ["good"]
    assert inputs(tmp_path / "a.csv", "1,good\n2,bad\n", None, "2") == ["good", "bad"]


def test_the_number_of_the_training_is_not_passed_over(tmp_path: Path) -> None:
    content = "text,comment,id\na,b,1\n"
    assert inputs(tmp_path / "a.csv", content, "1") == ["a"]
    for number, name in (("2", "comment"), ("3", "id")):
        message = rf"a\.csv:1: the training read the texts of column {number}, which is '{name}' here, and 'text' is a"
        with pytest.raises(ValueError, match=message):
            inputs(tmp_path / "a.csv", content, number)
    # a file without the labels of the training has fewer columns
    assert inputs(tmp_path / "a.csv", "text\na\n", "2") == ["a"]


def test_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.csv:1: 2 columns have the name 'body'; number one from 1"):
        inputs(tmp_path / "a.csv", "body,body\na,b\n", None, "body")


def test_keys_of_json_lines_are_columns(tmp_path: Path) -> None:
    content = '{"id": 1, "text": " good "}\n{"text": "bad", "id": 2}\n\n'
    assert inputs(tmp_path / "a.jsonl", content) == ["good", "bad"]
    assert inputs(tmp_path / "a.jsonl", '{"mail": "x", "text": "y"}\n', "mail") == ["x"]
    assert inputs(tmp_path / "a.jsonl", '{"mail": "x", "text": "y"}\n', None, "mail") == ["x"]
    for line, message in (
        ('{"mail": "x"}', "no key is known as the text in 'mail'; name it by --text-column"),
        ('{"text": null}', "text must be a string, got null; fill it in, or delete the line"),
        ("good", "a line must be one JSON object, got 'good'"),
        ('["good"]', "one object per line; convert it with: jq"),
    ):
        with pytest.raises(ValueError, match=message):
            inputs(tmp_path / "a.json", line)
