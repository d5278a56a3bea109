"""Files of labelled pairs: every format, pairs without a label, parts without a common text, sentences for errors."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tests.for_each import for_each

from regard.data.spreadsheets.pair_columns import Columns
from regard.data.text.sentence_pairs import LabelledPairs, read_labelled_pairs

SICK = (
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    "1\tA dog runs\tAn animal runs\t4.5\tENTAILMENT\n"
    "2\tA dog runs\tNo dog runs\t3.2\tCONTRADICTION\n"
)


def write(folder: Path, text: str, name: str = "pairs.tsv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def lines(path: Path, columns: str | None = None) -> list[str]:
    return read_labelled_pairs(path, columns=None if columns is None else Columns.parse(columns)).lines


def test_a_header_is_recognised(tmp_path: Path) -> None:
    expected = ["ENTAILMENT\tA dog runs\tAn animal runs", "CONTRADICTION\tA dog runs\tNo dog runs"]
    assert lines(write(tmp_path, SICK)) == expected
    assert lines(write(tmp_path, SICK, "pairs.txt.gz")) == expected
    assert lines(write(tmp_path, SICK), "2,3,5") == expected
    assert lines(write(tmp_path, SICK), "sentence_B,sentence_A,relatedness_score")[0] == (
        "4.5\tAn animal runs\tA dog runs"
    )


def test_columns_without_a_header(tmp_path: Path) -> None:
    assert lines(write(tmp_path, "yes\ta b\tc d\nno\te\tf\n")) == ["yes\ta b\tc d", "no\te\tf"]
    assert lines(write(tmp_path, "7\ta b\tc d\tyes\n8\te\tf\tno\n"), "2,3,4") == ["yes\ta b\tc d", "no\te\tf"]


def test_json_lines_and_pairs_without_a_label(tmp_path: Path) -> None:
    rows = [
        {"gold_label": label, "sentence1": f"a {n}", "sentence2": "b", "captionID": "x"}
        for n, label in enumerate(["neutral", "-", "entailment"])
    ]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "snli.jsonl.gz")
    pairs = read_labelled_pairs(path)
    assert pairs.lines == ["neutral\ta 0\tb", "entailment\ta 2\tb"]
    assert (pairs.classes, pairs.num_unlabelled) == (("entailment", "neutral"), 1)
    other = write(tmp_path, '{"q1": "a", "q2": "b", "same": 1}\n', "other.json")
    assert lines(other, "q1,q2,same") == ["1\ta\tb"]


def test_the_classes_of_a_run(tmp_path: Path) -> None:
    path = write(tmp_path, "no\ta\tb\n")
    assert read_labelled_pairs(path, ["maybe", "no", "yes"]).labels.tolist() == [1]
    with pytest.raises(ValueError, match=r"pairs.tsv:1: unknown label 'no'; known are: false, true"):
        read_labelled_pairs(path, ["false", "true"], refuses_unseen=True)


@for_each(
    ("text", "name", "columns", "message"),
    [
        ("yes\ta\tb\nno\t\tb\n", "x.tsv", None, r"x.tsv:2: the first text is empty, got 'no\\t\\tb'; fill it in, or"),
        ("yes\ta\t \n", "x.tsv", None, r"x.tsv:1: the second text is empty.*; fill it in, or delete the line"),
        ("\ta\tb\n", "x.tsv", None, r"x.tsv:1: the label is empty.*; fill it in, or delete the line"),
        ("yes\ta\tb\nno\ta\n", "x.tsv", None, r"x.tsv:2: a line must have 3 columns, as the first line has, got 2 in"),
        ("a\tb\n", "x.tsv", None, r"x.tsv:1: a line must be label, tab, text, tab, text, got 2 columns.*or number"),
        ("a\tb\tc\td\n", "x.tsv", "1,2,9", r"x.tsv:1: columns must be from 1 to 4, got 1,2,9; count from 1"),
        (SICK, "x.tsv", "sentence_A,sentence_B,judgment", r"x.tsv:1: unknown columns 'judgment'.*entailment_judgment"),
        ("sentence1\tsentence2\tx\n", "x.tsv", None, r"x.tsv:1: no columns of the label among .*such as --columns"),
        ("label\tsentence1\tsentence2\n", "x.tsv", None, r"x.tsv:1: the file has a header and no pairs; it must hold"),
        ('{"a": 1}\n', "x.jsonl", None, r"x.jsonl:1: no keys of the first text among 'a'; name both texts and the"),
        ('{"a": 1}\n', "x.jsonl", "a,b,c", r"x.jsonl:1: the key 'b' is missing.*; name the keys by --columns"),
        ('{"a": 1, "b": "", "c": 2}\n', "x.jsonl", "a,b,c", r"x.jsonl:1: a must be a string, got 1; quote it"),
        ('{"a": "", "b": "", "c": []}\n', "x.jsonl", "a,b,c", r"x.jsonl:1: c must be a string or a number, got \[\]"),
        ("-\ta\tb\n", "x.tsv", None, r"x.tsv has no pair with a label: all 1 have '-'; name another file"),
        ("", "x.tsv", None, r"x.tsv is empty; it must hold label, tab, text, tab, text"),
        ("yes\ta\tb c d e\n", "x.tsv", None, r"x.tsv:1: the second text has 4 words, more than max_length=3; shorten"),
    ],
)
def test_a_sentence_for_every_error(tmp_path: Path, text: str, name: str, columns: str | None, message: str) -> None:
    chosen = None if columns is None else Columns.parse(columns)
    with pytest.raises(ValueError, match=message):
        read_labelled_pairs(write(tmp_path, text, name), columns=chosen, max_length=3)


@pytest.mark.parametrize("text", ["a,b", "a,,c", "a"])
def test_columns_are_three(text: str) -> None:
    with pytest.raises(ValueError, match=rf"columns must be three names or numbers.*got '{text}'; try columns="):
        Columns.parse(text)


def test_pairs_fit_together() -> None:
    with pytest.raises(ValueError, match="second must be one per pair, got 0 for 1 first texts; give as many"):
        LabelledPairs(["a"], [], np.zeros(1, np.int64), ("x",))
