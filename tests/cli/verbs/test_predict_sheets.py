"""Sheets for `regard predict --file` and `regard evaluate --test`: columns by name, and a header is no text."""

import json
from pathlib import Path

import pytest
from tests.data.spreadsheets import test_pair_sheets, test_rows

from regard.cli.main import main

TEXT = ["--width", "4", "--hidden", "4", "--hops", "1", "--feed", "4", "--steps", "1", "--threads", "1"]
PAIR = ["--embedding", "4", "--hidden", "4", "--characters", "0", "--steps", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def texts_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.csv").write_text(test_rows.sheet("label,text", "{label},{text}"))
    assert (
        main(["train", "classify-text", "--train", str(folder / "train.csv"), *TEXT, "--out", str(folder / "r")]) == 0
    )
    return folder / "r"


@pytest.fixture(scope="module")
def pairs_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    content = test_pair_sheets.sheet("label,premise,hypothesis", "{label},{a},{b}")
    (folder / "train.csv").write_text(content)
    assert main(["train", "match", "--train", str(folder / "train.csv"), *PAIR, "--out", str(folder / "r")]) == 0
    return folder / "r"


def predicted(run: Path, path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    capsys.readouterr()
    assert main(["predict", str(run), "--file", str(path), "--json", *options]) == 0
    return [next(iter(json.loads(line).values())) for line in capsys.readouterr().out.splitlines()]


def evaluated(run: Path, path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> int:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--test", str(path), "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    return found.get("texts") or found["pairs"]


def test_texts_of_sheets(texts_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for case, (name, content, columns) in test_rows.CASES.items():
        (tmp_path / name).write_bytes(content)
        texts = ["--text-column", columns.text] if columns.text else []
        labels = ["--label-column", columns.label] if columns.label else []
        assert evaluated(texts_run, tmp_path / name, capsys, *texts, *labels) == len(test_rows.ROWS), case
        # two columns without a header do not say which has the text; a file of lines is no sheet
        options = ["--text-column", "2" if case == "no header" else "1"] if "no header" in case and not texts else texts
        if case != "UTF-16":
            assert predicted(texts_run, tmp_path / name, capsys, *options) == test_rows.TEXTS, case


def test_pairs_of_sheets(pairs_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = [line.partition("\t")[2] for line in test_pair_sheets.LINES]
    for case, (name, content, columns) in test_pair_sheets.CASES.items():
        (tmp_path / name).write_bytes(content)
        named = [] if columns is None else ["--columns", ",".join(columns)]
        assert evaluated(pairs_run, tmp_path / name, capsys, *named) == len(expected), case
        options = [] if columns is None else ["--text-column", ",".join(columns[:2])]
        if case.startswith("no header") and columns is None:
            options = ["--text-column", "1,2" if "last" in case else "2,3"]
        assert predicted(pairs_run, tmp_path / name, capsys, *options) == expected, case


def test_lines_and_single_columns(
    texts_run: Path, pairs_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (
        ("a.txt", "Great, again\nText\n"),
        ("a.csv", "text\nGreat, again\nText\n"),
        ("a.csv", '"Great, again"\nText\n'),
        ("a.tsv", "id\ttext\n1\tGreat, again\n2\tText\n"),
    ):
        (tmp_path / name).write_text(content)
        assert predicted(texts_run, tmp_path / name, capsys) == ["Great, again", "Text"], content
    (tmp_path / "a.tsv").write_text("A man\tsings\n")
    assert predicted(pairs_run, tmp_path / "a.tsv", capsys) == ["A man\tsings"]
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\nA man\tsings\n")
    assert predicted(pairs_run, tmp_path / "a.tsv", capsys) == ["A man\tsings"]


def test_a_sheet_without_texts(texts_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("id,text\n")
    capsys.readouterr()
    assert main(["predict", str(texts_run), "--file", str(tmp_path / "a.csv")]) == 0
    assert f"there is no line in {tmp_path / 'a.csv'}, so nothing was predicted" in capsys.readouterr().err


def test_columns_belong_to_other_pairs(pairs_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(pairs_run), "--columns", "a,b,c"]) == 2
    assert "--columns a,b,c are columns of other data; give --test FILE as well" in capsys.readouterr().err


def test_what_is_wrong_is_one_sentence(texts_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ID,Inhalt\n1,Great\n")
    (tmp_path / "b.csv").write_text("subject,body\nHello,Great\n")
    for command, sentence in (
        (
            ["predict", "--file", str(path)],
            "a.csv:1: no column is known as the text in 'ID', 'Inhalt'; name it by --text-",
        ),
        (
            ["predict", "--file", str(path), "--text-column", "Inhlt"],
            "unknown text column 'Inhlt'; did you mean 'Inhalt'?",
        ),
        (["predict", "--file", str(path), "--text-column", "3"], "--text-column must be from 1 to 2, or a name, got 3"),
        (["predict", "--file", str(path), "--text-column", "1,2"], "--text-column must name 1 column, got 1,2"),
        (["predict", "--file", str(tmp_path / "b.csv")], "the columns 'subject' and 'body' may both hold the text"),
        (["predict", "Great", "--text-column", "Inhalt"], "--text-column Inhalt is a column of --file; give --file"),
        (
            ["predict", "--file", "-", "--text-column", "Inhalt"],
            "--text-column Inhalt is a column of --file; give --file",
        ),
        (["evaluate", "--text-column", "Inhalt"], "--text-column Inhalt is a column of other data; give --test FILE"),
    ):
        capsys.readouterr()
        assert main([command[0], str(texts_run), *command[1:]]) == 2
        assert sentence in capsys.readouterr().err
