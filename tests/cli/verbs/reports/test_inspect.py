"""regard inspect: files of every form, of every script, and of hostile content."""

import json
import unicodedata
from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard
from tests.for_each import for_each

from regard.data.inspection import _is_one_edit, inspect_file, recognise_task, script_shares
from regard.data.spreadsheets.label_columns import TextColumns

SHEET = "ID;Text;Kategorie\r\n" + "".join(
    f'{n};"Text {n}; mit ""Zitat""\r\nund Zeile";{label}\r\n'
    for n, label in enumerate(["Rechnung"] * 12 + ["rechnung "] + ["Rechnumg"] + ["Lob"] * 5)
)
SCRIPTS = {
    "Latin": "ab", "Greek": "αβ", "Cyrillic": "аб", "Hebrew": "אב", "Arabic": "اب", "Devanagari": "कख", "Bengali": "কখ",
    "Tamil": "கங", "Telugu": "కఖ", "Thai": "กข", "Lao": "ກຂ", "Tibetan": "ཀཁ", "Georgian": "აბ", "Hangul": "가나",
    "Hiragana": "あい", "Katakana": "アイ", "CJK": "中文", "Ethiopic": "ሀለ", "Khmer": "កខ", "Armenian": "աբ",
    "Sinhala": "කඛ", "Myanmar": "ကခ",
}  # fmt: skip


def test_a_sheet_of_a_spreadsheet(tmp_path: Path, regard: Regard) -> None:
    path, other = tmp_path / "tickets.csv", tmp_path / "test.csv"
    path.write_bytes(b"\xef\xbb\xbf" + SHEET.encode())
    other.write_text('Text,Kategorie\n"Text 3; mit ""Zitat""\nund Zeile",Lob\nother,Lob\n', encoding="utf-8")
    ran = regard("inspect", path, "--other", other, "--json")
    found = json.loads(ran.out)
    assert found["columns"] == {"text": "Text", "label": "Kategorie"}
    assert (found["examples"], found["duplicates"], found["overlap"]) == (19, 0, 1)
    assert found["classes"] == {"Rechnung": 12, "Lob": 5, "Rechnumg": 1, "rechnung": 1}
    assert (
        found["suspicious"]
        == [
            "the labels 'Rechnumg' and 'rechnung' differ by case or blanks alone",
        ]
        or "the labels 'Rechnung' and 'rechnung' differ by case or blanks alone" in found["suspicious"]
    )
    assert "the label 'Rechnumg' (1) may be a misspelling of 'Rechnung' (12)" in found["suspicious"]
    assert found["command"] == f"regard train classify-text --train {path} --test {other} --out runs/tickets"
    text = regard("inspect", path, "--text-column", "Text", "--label-column", "Kategorie").out
    assert "19 examples for classify-text" in text
    assert "--text-column Text --label-column Kategorie --out runs/tickets" in text


@for_each(
    ("name", "content", "task"),
    [
        ("a.tsv", "one\teins\ntwo\tzwei\nthree\tdrei\n", "translate"),
        ("a.tsv", "good\ta\ngood\tb\nbad\tc\nbad\td\n", "classify-text"),
        ("a.tsv", "label\ttext\nx\ta\nx\tb\n", "classify-text"),
        ("a.csv", "premise,hypothesis,label\na,b,x\nc,d,x\ne,f,y\ng,h,y\n", "match"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n', "classify-text"),
        ("a.conll", "a B-X\nb O\n", "tag"),
        ("a.txt", "one line\nanother line\n", "language-model"),
    ],
)
def test_forms_are_recognised(name: str, content: str, task: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert recognise_task(tmp_path / name) == task


@pytest.mark.parametrize("task", ["match", "tag", "translate", "language-model"])
def test_each_task_is_read_by_its_reader(task: str, tmp_path: Path, regard: Regard) -> None:
    content = {
        "match": "x\ta\tb\nx\ta\tb\ny\tc\td\ny\ta\tb\n",
        "tag": "a B-X\nb O\n\na B-X\nb O\n",
        "translate": "a b\tc\na b\td\n",
        "language-model": "a b\na b\n",
    }[task]
    path = tmp_path / "data"
    path.write_text(content)
    found = json.loads(regard("inspect", path, "--task", task, "--json").out)
    assert found["task"] == task
    assert found["duplicates"] >= 1
    assert (found["conflicts"] > 0) == (task in ("match", "translate"))
    assert regard("inspect", path, "--task", task).code == 0


@for_each(("name", "letters"), SCRIPTS.items())
def test_scripts(name: str, letters: str) -> None:
    assert script_shares([f"{letters} 12 !?"]) == {name: 1.0}


def test_scripts_of_no_letters() -> None:
    assert script_shares(["123 !?", ""]) == {}
    every = "".join(chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] == "L")
    assert sum(script_shares([every]).values()) == pytest.approx(1)


@for_each(
    ("content", "sentence"),
    [
        (b"", "is empty; it must hold"),
        (b"\x89PNG\r\n", "is a PNG image"),
        (b'text,label\n"open,x\n', "the row is not CSV"),
        (b"text;label\na\n", "columns"),
        (b"a\x00b,c\n", "a.csv"),
    ],
)
def test_what_cannot_be_read(content: bytes, sentence: str, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert sentence in refused("inspect", path)


def test_wrong_options(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb,x\nc,y\nd,y\n")
    assert refused("inspect", path, "--task", "nope").startswith(
        "unknown --task 'nope'; known are: classify-text, match"
    )
    assert refused("inspect", path, "--columns", "a,b,c", "--text-column", "text").startswith(
        "--columns and --text-column or --label-column exclude each other; give one of them"
    )
    assert refused("inspect", tmp_path).startswith(f"{tmp_path}")
    assert refused("inspect").startswith("FILE is missing: regard inspect FILE;")


def test_suspicious_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [("x", "SchÃ¶n"), ("x", "lost \ufffd"), ("y", "a" * 200_000), ("y", "b"), ("y" * 50, "c"), ("y" * 50, "d")]
    path.write_text("label,text\n" + "".join(f"{label},{text}\n" for label, text in rows), encoding="utf-8")
    found = inspect_file(path, None, TextColumns("text", "label"))
    assert found.suspicious == [
        f"the label {'y' * 50!r} looks like a text",
        "1 texts hold U+FFFD, the sign of a character that was lost when the file was converted",
        "1 texts look like UTF-8 that was read as Windows-1252, such as Ã¤; convert the file again",
        "a text has 200,000 characters; its quotes may not be closed",
    ]


def test_one_class(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb,x\n \n")
    assert inspect_file(path).suspicious == ["all examples have the label 'x', and a model tells two or more apart"]


def test_one_edit() -> None:
    assert all(_is_one_edit(*pair) for pair in [("abc", "abd"), ("abc", "ab"), ("ab", "abc"), ("abc", "xabc")])
    assert not any(_is_one_edit(*pair) for pair in [("abc", "abc"), ("abc", "bac"), ("abcd", "ab"), ("ab", "ba")])


def test_pairs_of_a_sheet(tmp_path: Path, regard: Regard, refused: Refused) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("ID;de;en\n1;Hund;dog\n2;Katze;cat\n")
    found = json.loads(regard("inspect", path, "--columns", "de,en", "--json").out)
    assert (found["task"], found["columns"]) == ("translate", {"source": "de", "target": "en"})
    assert found["command"] == f"regard train translate --train {path} --columns de,en --out runs/pairs"
    path.write_text("source,target\nHund,dog\n")
    assert json.loads(regard("inspect", path, "--json").out)["task"] == "translate"
    assert refused("train", "translate", "--data", "dates", "--columns", "de,en", "--out", tmp_path / "run").startswith(
        "--columns de,en belongs to files of your own; give train as well"
    )
