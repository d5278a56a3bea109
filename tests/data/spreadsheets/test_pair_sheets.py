"""Sheets of labelled pairs: as spreadsheets write them they give the right pairs, or one sentence with the option."""

import re
from pathlib import Path

import pytest
from tests.data.spreadsheets.test_rows import quote

from regard.data.spreadsheets.pair_columns import Columns
from regard.data.text.sentence_pairs import read_labelled_pairs

FIRST = ['The "X3" starts', "A dog; it runs", "Two cats,\nboth asleep", "It costs 5 €", "A man sings", "Snow falls"]
SECOND = ["It starts, again", "A cat sleeps", "Two animals", "It is free – today", "Someone sings", "The sun shines"]
LABELS = ["yes", "no", "yes", "no", "yes", "no"]
LINES = [f"{label}\t{a}\t{b}" for label, a, b in zip(LABELS, FIRST, SECOND, strict=True)]


def sheet(header: str, row: str, end: str = "\n") -> str:
    rows = [row.format(label=label, a=quote(a), b=quote(b)) for label, a, b in zip(LABELS, FIRST, SECOND, strict=True)]
    return "".join(line + end for line in ([header] if header else []) + rows)


GERMAN = Columns("Aussage", "Folgerung", "Urteil")
CASES: dict[str, tuple[str, bytes, Columns | None]] = {
    "quotes": ("a.csv", sheet("label,premise,hypothesis", "{label},{a},{b}").encode(), None),
    "cp1252": ("a.csv", sheet("label;text1;text2", "{label};{a};{b}").encode("cp1252"), None),
    "a German header, named": ("a.csv", sheet("ID;Aussage;Folgerung;Urteil", "7;{a};{b};{label}").encode(), GERMAN),
    "no header": ("a.csv", sheet("", "{label},{a},{b}").encode(), None),
    "no header, the label last": ("a.csv", sheet("", "{a};{b};{label}").encode(), None),
    "no header, by number": ("a.txt", sheet("", "7,{a},{b},{label}").encode(), Columns("2", "3", "4")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sheet_gives_the_right_pairs(case: str, tmp_path: Path) -> None:
    name, content, columns = CASES[case]
    (tmp_path / name).write_bytes(content)
    pairs = read_labelled_pairs(tmp_path / name, columns=columns)
    assert pairs.lines == LINES
    assert pairs.classes == ("no", "yes")
    assert pairs.num_windows == (case == "cp1252")
    # the classes of a model find the column of labels as well
    assert read_labelled_pairs(tmp_path / name, ("yes", "maybe", "no"), columns).lines == LINES


PLAIN = "".join(f"{'yes' if n % 2 else 'no'},text {n},and text {n}\n" for n in range(20))


def test_a_sheet_without_sure_columns_is_refused(tmp_path: Path) -> None:
    named = "name both texts and the label, such as --columns sentence1,sentence2,gold_label, or number them from 1"
    header = f"may be a header, for no other row has its label; if it is one, {named}, if not, move the row down"
    for name, content, sentence in (
        ("a.csv", "Urteil,Aussage,Folge\n" + PLAIN, f"a.csv:1: the first row, 'Urteil', 'Aussage', 'Folge', {header}"),
        ("a.tsv", ("Urteil,A,B\n" + PLAIN).replace(",", "\t"), f"a.tsv:1: the first row, 'Urteil', 'A', 'B', {header}"),
        ("a.csv", "ID,Urteil,A,B\n1,x,y,z\n", "text, got 4 columns in 'ID', 'Urteil', 'A', 'B'; " + named),
        ("a.csv", "one,two,three\nfour,five,six\n", "no column is known as the label in 'one', 'two', 'three'"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=re.escape(sentence)):
            read_labelled_pairs(tmp_path / name)
