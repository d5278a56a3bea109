"""Sheets of labelled texts: as spreadsheets write them they give the right classes, or one sentence with the option."""

from pathlib import Path

import pytest
from tests.for_each import for_each

from regard.data.spreadsheets.label_columns import TextColumns
from regard.data.text.labelled import read_labelled

TEXTS = [
    'The "X3" does not start, again',
    "Where is my order; it was due on Monday?",
    "Thank you,\nall is well",
    "The app – “new” – costs 5 €, twice",
    "Where is my parcel?",
    "Great service",
]
LABELS = ["fault", "delivery", "praise", "fault", "delivery", "praise"]
ROWS = list(zip(LABELS, TEXTS, strict=True))


def quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def sheet(header: str, row: str, end: str = "\n") -> str:
    lines = [row.format(label=label, text=quote(text)) for label, text in ROWS]
    return "".join(line + end for line in ([header] if header else []) + lines)


GERMAN = TextColumns("Inhalt", "Rubrik")
CASES: dict[str, tuple[str, bytes, TextColumns]] = {
    "quotes": ("a.csv", sheet("label,text", "{label},{text}").encode(), TextColumns()),
    "semicolons": ("a.csv", sheet("Text;Label", "{text};{label}").encode(), TextColumns()),
    "tabs": ("a.csv", sheet("label\ttext", "{label}\t{text}").encode(), TextColumns()),
    "quoted tabs": ("a.tsv", sheet('"label"\t"text"', '"{label}"\t{text}').encode(), TextColumns()),
    "cp1252": ("a.csv", sheet("label;text", "{label};{text}").encode("cp1252"), TextColumns()),
    "UTF-16": ("a.txt", sheet('"label"\t"text"', '"{label}"\t{text}', "\r\n").encode("utf-16"), TextColumns()),
    "UTF-16, big end first": (
        "a.csv",
        ("\ufeff" + sheet("label,text", "{label},{text}")).encode("utf-16-be"),
        TextColumns(),
    ),
    "a German header": ("a.csv", sheet("ID;Datum;Text;Kategorie", "7;1.2.26;{text};{label}").encode(), TextColumns()),
    "a German header, named": ("a.csv", sheet("ID;Inhalt;Rubrik", "7;{text};{label}").encode(), GERMAN),
    "two text columns": (
        "a.csv",
        sheet("subject,body,category", "hello,{text},{label}").encode(),
        TextColumns(text="Body"),
    ),
    "blank lines": ("a.csv", ("label,text\n\n,\n" + sheet("", "{label},{text}\n") + ",\n\n").encode(), TextColumns()),
    "no header": ("a.csv", sheet("", "{label},{text}").encode(), TextColumns()),
    "no header, exchanged": ("a.csv", sheet("", "{text};{label}").encode(), TextColumns()),
    "no header, by number": ("a.txt", sheet("", "7,{text},{label}").encode(), TextColumns("2", "3")),
    "Excel's": ("a.csv", ("\ufeff" + sheet("sep=;\r\nText;Label", "{text};{label}", "\r\n")).encode(), TextColumns()),
    "Excel's on an old Mac": ("A.CSV", sheet("Text;Label", "{text};{label}", "\r").encode(), TextColumns()),
}


@for_each("case", CASES)
def test_a_sheet_gives_the_right_classes_and_texts(case: str, tmp_path: Path) -> None:
    name, content, columns = CASES[case]
    (tmp_path / name).write_bytes(content)
    data = read_labelled(tmp_path / name, columns=columns)
    assert data.classes == ("delivery", "fault", "praise")
    assert list(data.texts) == TEXTS
    assert [data.classes[n] for n in data.labels] == LABELS
    assert (data.num_latin1, data.fallback) == (
        1 if case == "cp1252" else 0,
        "Windows-1252" if name != "a.txt" else "Latin-1",
    )
    # the classes of a model find the column of labels as well
    again = read_labelled(tmp_path / name, ("praise", "fault", "delivery", "other"), columns=columns)
    assert [again.classes[n] for n in again.labels] == LABELS


def test_quotes_of_a_file_with_tabs_are_undone_only_where_a_spreadsheet_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for lines, texts in {
        'x\t"one, ""two"""\ny\tthree\n': ['one, "two"', "three"],
        'x\t"one, two"\ny\tthree\n': ["one, two", "three"],
        'x\t"one"\ny\tthree\n': ['"one"', "three"],
        'x\t"one, two"\ny\tthree, four\n': ['"one, two"', "three, four"],
        'x\t"one" or ""two""\ny\tthree\n': ['"one" or ""two""', "three"],
        'x\t"one\ntwo"\ny\tthree\n': ["one\ntwo", "three"],
        # a quotation over several lines is no cell: each of them is a row
        'x\t"one\ny\ttwo\nx\tthree"\ny\tfour\n': ['"one', "two", 'three"', "four"],
    }.items():
        path.write_text(lines)
        assert list(read_labelled(path).texts) == texts


def test_json_lines_have_keys_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"category": "x", "body": "one"}\n{"category": "y", "body": "two"}\n')
    data = read_labelled(path, columns=TextColumns(text="body", label="category"))
    assert (data.classes, list(data.texts)) == (("x", "y"), ["one", "two"])
    with pytest.raises(ValueError, match=r"a\.jsonl:1: .* the keys label and text, got .*; name its keys by"):
        read_labelled(path)


PLAIN = "".join(f"{'pos' if n % 2 else 'neg'},the film was {n}\n" for n in range(20))
TABS = PLAIN.replace(",", "\t")
NUMBER = "name the columns by --label-column and --text-column, or number them from 1"


@for_each(
    ("name", "content", "columns", "sentence"),
    [
        (
            "a.txt",
            PLAIN,
            TextColumns(),
            r"a\.txt has no tab, and in 20 of 20 lines the first word, which would be the label, has a comma or "
            rf"semicolon, such as 'neg,the'; if it is CSV, {NUMBER}",
        ),
        ("a.txt", "label text\nx one\n", TextColumns(), r"a\.txt:1: 'label text' is a header, and no tab separates"),
        (
            "a.txt",
            "".join(f"w{n} some text\n" for n in range(10)),
            TextColumns(),
            rf"a\.txt has 10 classes for 10 texts, such as 'w0', 'w1', 'w2'; if its labels are elsewhere, {NUMBER}",
        ),
        ("a.csv", "Rubrik,Inhalt\n" + PLAIN, TextColumns(), r"a\.csv:1: the first row, 'Rubrik', 'Inhalt', may be a"),
        ("a.tsv", "Rubrik\tInhalt\n" + TABS, TextColumns(), r"a\.tsv:1: the first row, 'Rubrik', 'Inhalt', may be"),
        ("a.csv", "ID,Rubrik,Inhalt\n1,x,one\n", TextColumns(), r"a\.csv:1: no column is known as the label and the"),
        (
            "a.csv",
            "title,body,category\none,two,x\n",
            TextColumns(),
            r"a\.csv:1: the columns 'title' and 'body' may both hold the text; name one by --text-column",
        ),
        (
            "a.csv",
            "Rubrik,Text\nx,one\n",
            TextColumns(label="Rubrk"),
            r"a\.csv:1: unknown label column 'Rubrk'; did you mean 'Rubrik'\? known are: Rubrik, Text",
        ),
        (
            "a.csv",
            "ID,Rubrik,Inhalt\n1,x,one\n",
            TextColumns(label="Rubrik"),
            r"a\.csv:1: no column is known as the text in 'ID', 'Rubrik', 'Inhalt'; name the columns by",
        ),
        ("a.csv", "A,B\nx,one\n", TextColumns("3"), r"a\.csv:1: --text-column must be from 1 to 2, or a name, got 3"),
        ("a.csv", "A,A\nx,one\n", TextColumns("A"), r"2 columns have the name 'A'; number one from 1, as --text"),
        ("a.csv", "A,B\nx,one\n", TextColumns("A", "A"), r"the label and the text have the same column, 'A'; name"),
        ("a.csv", "label,text\nx,one, two\n", TextColumns(), r"a\.csv:2: a line must have 2 columns, .* got 3 in 'x,o"),
        ("a.csv", 'label,text\nx,"one" two\n', TextColumns(), r"a\.csv:2: the row is not CSV \(',' expected after "),
        ("a.csv", 'label,text\nx,"one\n', TextColumns(), r"a\.csv:2: the row is not CSV \(unexpected end of data\);"),
        ("a.csv", "one\ntwo\n", TextColumns(), r"a\.csv:1: a row must have two columns or more, separated by com"),
        ("a.csv", "label,text\n\n", TextColumns(), r"a\.csv has a header and no texts; it must hold label, tab, text"),
    ],
)
def test_a_sheet_without_sure_columns_is_refused(
    name: str, content: str, columns: TextColumns, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_labelled(tmp_path / name, columns=columns)


def test_bytes_that_windows_does_not_write(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"label,text\nx,\x81\n")
    with pytest.raises(ValueError, match=r"a\.csv:2: byte 0x81 at place 3 is neither UTF-8 nor Windows-1252; save the"):
        read_labelled(tmp_path / "a.csv")


def test_documents_longer_than_csv_takes(tmp_path: Path) -> None:
    document = "long, " * 30_000
    (tmp_path / "a.csv").write_text(f'label,text\na,"{document}"\nb,short\n')
    assert read_labelled(tmp_path / "a.csv").texts == [document.strip(), "short"]
