"""Sheets for `regard predict --file` and `regard evaluate --test`: columns by name, and a header is no text."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard, train
from tests.data.spreadsheets import test_pair_sheets, test_rows

TEXT = "--width 4 --hidden 4 --hops 1 --feed 4 --steps 1 --threads 1"
PAIR = "--embedding 4 --hidden 4 --characters 0 --steps 1 --threads 1"


@pytest.fixture(scope="module")
def texts_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.csv").write_text(test_rows.sheet("label,text", "{label},{text}"))
    return train(folder / "r", "classify-text", TEXT, "--train", folder / "train.csv")


@pytest.fixture(scope="module")
def pairs_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "train.csv").write_text(test_pair_sheets.sheet("label,premise,hypothesis", "{label},{a},{b}"))
    return train(folder / "r", "match", PAIR, "--train", folder / "train.csv")


def predicted(regard: Regard, run: Path, path: Path, *options: str) -> list[str]:
    ran = regard("predict", run, "--file", path, "--json", *options)
    assert ran.code == 0, ran.err
    return [next(iter(json.loads(line).values())) for line in ran.out.splitlines()]


def evaluated(regard: Regard, run: Path, path: Path, *options: str) -> int:
    found = json.loads(regard("evaluate", run, "--test", path, "--json", *options).out)
    return found.get("texts") or found["pairs"]


def test_texts_of_sheets(regard: Regard, texts_run: Path, tmp_path: Path) -> None:
    for case, (name, content, columns) in test_rows.CASES.items():
        (tmp_path / name).write_bytes(content)
        texts = ["--text-column", columns.text] if columns.text else []
        labels = ["--label-column", columns.label] if columns.label else []
        assert evaluated(regard, texts_run, tmp_path / name, *texts, *labels) == len(test_rows.ROWS), case
        # two columns without a header do not say which has the text; a file of lines is no sheet
        options = ["--text-column", "2" if case == "no header" else "1"] if "no header" in case and not texts else texts
        if case != "UTF-16":
            assert predicted(regard, texts_run, tmp_path / name, *options) == test_rows.TEXTS, case


def test_pairs_of_sheets(regard: Regard, pairs_run: Path, tmp_path: Path) -> None:
    expected = [line.partition("\t")[2] for line in test_pair_sheets.LINES]
    for case, (name, content, columns) in test_pair_sheets.CASES.items():
        (tmp_path / name).write_bytes(content)
        named = [] if columns is None else ["--columns", ",".join(columns)]
        assert evaluated(regard, pairs_run, tmp_path / name, *named) == len(expected), case
        options = [] if columns is None else ["--text-column", ",".join(columns[:2])]
        if case.startswith("no header") and columns is None:
            options = ["--text-column", "1,2" if "last" in case else "2,3"]
        assert predicted(regard, pairs_run, tmp_path / name, *options) == expected, case


def test_lines_and_single_columns(regard: Regard, texts_run: Path, pairs_run: Path, tmp_path: Path) -> None:
    for name, content in (
        ("a.txt", "Great, again\nText\n"),
        ("a.csv", "text\nGreat, again\nText\n"),
        ("a.csv", '"Great, again"\nText\n'),
        ("a.tsv", "id\ttext\n1\tGreat, again\n2\tText\n"),
    ):
        (tmp_path / name).write_text(content)
        assert predicted(regard, texts_run, tmp_path / name) == ["Great, again", "Text"], content
    for header in ("", "sentence1\tsentence2\n"):
        (tmp_path / "a.tsv").write_text(f"{header}A man\tsings\n")
        assert predicted(regard, pairs_run, tmp_path / "a.tsv") == ["A man\tsings"]


def test_a_sheet_without_texts(regard: Regard, texts_run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n")
    ran = regard("predict", texts_run, "--file", tmp_path / "a.csv")
    assert ran.code == 0
    assert f"there is no line in {tmp_path / 'a.csv'}, so nothing was predicted" in ran.err


def test_what_is_wrong_is_one_sentence(refused: Refused, texts_run: Path, pairs_run: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("ID,Inhalt\n1,Great\n")
    b.write_text("subject,body\nHello,Great\n")
    predict, of_file = ["predict", texts_run], ["predict", texts_run, "--file", a]
    for command, sentence in (
        (of_file, "a.csv:1: no column is known as the text in 'ID', 'Inhalt'; name it by --text-"),
        ([*of_file, "--text-column", "Inhlt"], "unknown text column 'Inhlt'; did you mean 'Inhalt'?"),
        ([*of_file, "--text-column", "3"], "--text-column must be from 1 to 2, or a name, got 3"),
        ([*of_file, "--text-column", "1,2"], "--text-column must name 1 column, got 1,2"),
        ([*predict, "--file", b], "the columns 'subject' and 'body' may both hold the text"),
        ([*predict, "a", "--text-column", "Inhalt"], "--text-column Inhalt is a column of --file; give --file"),
        ([*predict, "--file", "-", "--text-column", "Inhalt"], "--text-column Inhalt is a column of --file; give"),
        (["evaluate", texts_run, "--text-column", "A"], "--text-column A is a column of other data; give --test FILE"),
        (["evaluate", pairs_run, "--columns", "a,b,c"], "--columns a,b,c are columns of other data; give --test FILE"),
    ):
        assert sentence in refused(*command)
