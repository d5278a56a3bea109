"""Pairs in sheets, as spreadsheets write them."""

from pathlib import Path

import pytest
from tests.for_each import for_each

from regard.data.spreadsheets.text_pairs import parse_columns
from regard.data.text.pairs import read_pairs


@for_each(
    ("content", "names"),
    [
        (b"\xef\xbb\xbfsource,target\r\nein Hund,a dog\r\n\"eine, Katze\",a cat\r\n", None),
        (b"ID;Target;Source\n1;a dog;ein Hund\n2;a cat;\"eine, Katze\"\n", None),
        (b"ein Hund;a dog\neine, Katze;a cat\n", None),
        (b"ID;de;en\n1;\"ein\nHund\";a dog\n2;eine, Katze;a cat\n", "de,en"),
        (b"ID;de;en\n1;ein Hund;a dog\n2;eine, Katze;a cat\n", " DE , en "),
        (b"ein Hund;x;a dog\neine, Katze;y;a cat\n", "1,3"),
        (b"sep=|\nsource|target\nein Hund|a dog\neine, Katze|a cat\n", None),
        ("source;target\nein Hund;a dog\neine, Katze;a cat\n".encode("utf-16"), None),
    ],
)  # fmt: skip
def test_sheets_of_pairs(content: bytes, names: str | None, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(content)
    pairs = read_pairs([path], names=names)
    assert list(zip(pairs.source, pairs.target, strict=True)) == [("ein Hund", "a dog"), ("eine, Katze", "a cat")]


def test_columns_of_a_file_with_tabs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("n\tde\ten\n1\tHund\tdog\n")
    assert list(read_pairs([path], names="de,en").target) == ["dog"]
    path.write_text("Hund, groß\tdog\n")
    assert list(read_pairs([path]).source) == ["Hund, groß"], "lines with tabs are no sheets"


@for_each(
    ("content", "names", "sentence"),
    [
        ("a;b;c\n1;2;3\n", None, ":1: no columns are known as source and target in 'a', 'b', 'c'; name both by "
         "--columns, such as --columns de,en, or number them from 1"),
        ("a;b\n1;2\n", "a,a", ":1: both texts have the same column, 'a'; name two by --columns"),
        ("a;b\n1;2\n", "a,x", ":1: unknown text column 'x'; known are: a, b"),
        ("source;target\n1\n", None, ":2: a line must have 2 columns, as the header has, got 1 in '1'"),
    ],
)  # fmt: skip
def test_sheets_that_are_not_read(content: str, names: str | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(content)
    with pytest.raises(ValueError) as raised:  # noqa: PT011  its text is read below
        read_pairs([path], names=names)
    assert str(raised.value).startswith(f"{path}{sentence}")


def test_columns_are_two_of_one_file(tmp_path: Path) -> None:
    assert parse_columns("de, en") == ("de", "en")
    for text in ("de", "de,", "a,b,c", ""):
        with pytest.raises(ValueError, match="columns must be two names or numbers, of the source and the target, got"):
            parse_columns(text)
    with pytest.raises(ValueError, match="columns=de,en are those of one sheet, got 2 files; give one, or leave them"):
        read_pairs([tmp_path, tmp_path], names="de,en")
