"""Pairs of texts with one class each, from files: JSON lines, or columns separated by tabs.

    {"gold_label": "neutral", "sentence1": "Two women are embracing.", "sentence2": "The sisters are hugging."}
    neutral <tab> Two women are embracing. <tab> The sisters are hugging.

A first line of columns with known names, such as sentence_A, sentence_B and entailment_judgment, is a header.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.common import json_files
from regard.common.suggestions import known
from regard.common.word_splitting import split_words
from regard.common.wording import shortened
from regard.data.splitting import check_labels, relabel, stratified_split
from regard.data.text.pair_columns import KNOWN_COLUMNS, Columns
from regard.data.text.pairs import read_records
from regard.data.unseen_labels import extend_classes

_HOLDS = "label, tab, text, tab, text, one pair per line, or JSON lines with the keys gold_label, sentence1, sentence2"
_JSON = (".jsonl", ".ndjson", ".json")
# the label of a pair about which the annotators did not agree
NO_LABEL = "-"


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Pairs of texts with one class each."""

    first: Sequence[str]
    second: Sequence[str]
    labels: NDArray[np.int64]  # "n"
    classes: tuple[str, ...]
    num_unlabelled: int = 0  # pairs of the file that have no label and are left out

    def __post_init__(self) -> None:
        for name, values in (("second", self.second), ("labels", self.labels)):
            if len(values) != len(self.first):
                raise ValueError(
                    f"{name} must be one per pair, got {len(values)} for {len(self.first)} first texts; give as many"
                )
        check_labels(self.labels, self.classes, "pair")

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, index: NDArray[np.int64]) -> "LabelledPairs":
        first, second = ([texts[n] for n in index.tolist()] for texts in (self.first, self.second))
        return LabelledPairs(first, second, self.labels[index], self.classes, self.num_unlabelled)

    @property
    def lines(self) -> list[str]:
        """Every pair as a line: label, tab, first text, tab, second text."""
        labels = [self.classes[n] for n in self.labels.tolist()]
        return [f"{each}\t{a}\t{b}" for each, a, b in zip(labels, self.first, self.second, strict=True)]


@dataclass(frozen=True)
class PairSplits:
    """Pairs to train on, to choose the best weights by, and to test on: no pair of one part is in another."""

    train: LabelledPairs
    valid: LabelledPairs
    test: LabelledPairs


def split_pairs(data: LabelledPairs, share: float, seed: int) -> tuple[LabelledPairs, LabelledPairs]:
    """Two parts, the second with about this share of every class; pairs with the same first text stay together.

    So no pair is in both parts, and no text that several pairs share, such as a picture's description in SNLI.
    """
    groups = np.unique(np.array(data.first, dtype=object), return_inverse=True)[1]
    rest, held_out = stratified_split(data, share, seed, groups=groups)
    if not len(held_out) or not len(rest):
        raise ValueError(
            f"there is no pair to hold out: of {len(data)} pairs no class has two with different first texts; "
            "give more pairs, or a file to validate on as well"
        )
    return rest, held_out


def read_labelled_pairs(
    path: Path,
    classes: Sequence[str] | None = None,
    columns: Columns | None = None,
    max_length: int | None = None,
    *,
    with_unseen: bool = False,
) -> LabelledPairs:
    """The pairs of a UTF-8 file, `.gz` unpacked; the first line decides the format.

    Classes are the labels in the file, sorted. With `classes`, such as those of a trained model, labels must be among
    them; `with_unseen`, as data to evaluate may have them, other labels are classes behind these. Pairs with the label
    "-" are left out and counted. A text of more than `max_length` words is an error.
    """
    rows = list(_rows(path, columns))
    for row in rows:
        for name in ("first", "second"):
            if max_length is not None and (count := count_words(getattr(row, name), max_length)) > max_length:
                raise ValueError(
                    f"{path}:{row.number}: the {name} text has {count:,} words, more than max_length={max_length:,}; "
                    "shorten it, or raise the limit"
                )
    labelled = [row for row in rows if row.label != NO_LABEL]
    if not labelled:
        raise ValueError(f"{path} has no pair with a label: all {len(rows):,} have {NO_LABEL!r}; name another file")
    if classes is None:
        classes = sorted({row.label for row in labelled})
    elif with_unseen:
        classes = extend_classes((row.label for row in labelled), classes, path)
    for row in labelled:
        try:
            known("label", row.label, classes)
        except ValueError as error:
            raise ValueError(f"{path}:{row.number}: {error}") from error
    numbers = {label: n for n, label in enumerate(classes)}
    labels = np.array([numbers[row.label] for row in labelled], np.int64)
    first, second = [row.first for row in labelled], [row.second for row in labelled]
    return LabelledPairs(first, second, labels, tuple(classes), len(rows) - len(labelled))


def with_pair_classes(data: LabelledPairs, classes: Sequence[str], name: str) -> LabelledPairs:
    """The same pairs with the numbers of these classes, which must have all labels of the data called `name`."""
    return replace(data, labels=relabel(data.labels, data.classes, classes, name), classes=tuple(classes))


def count_words(text: str, most: int) -> int:
    """The number of words and marks; 0 for a text that is too short to have more than `most`."""
    return len(split_words(text)[0]) if len(text) > most else 0


class _PairRow(NamedTuple):
    number: int  # of the line
    first: str
    second: str
    label: str


def _rows(path: Path, columns: Columns | None) -> Iterator[_PairRow]:
    lines = list(read_records(path, _HOLDS))
    is_json = path.name.removesuffix(".gz").endswith(_JSON) or lines[0].lstrip().startswith("{")
    try:
        parse, header = (_json_parser(lines[0], columns), 0) if is_json else _column_parser(lines[0], columns)
    except ValueError as error:
        raise ValueError(f"{path}:1: {error}") from error
    if len(lines) == header:
        raise ValueError(f"{path} has a header and no pairs; it must hold {_HOLDS}")
    for number, line in enumerate(lines[header:], header + 1):
        try:
            row = _PairRow(number, *(part.strip() for part in parse(line)))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        empty = next((name for name in ("first", "second", "label") if not getattr(row, name)), None)
        if empty is not None:
            part = empty if empty == "label" else f"{empty} text"
            raise ValueError(
                f"{path}:{number}: the {part} is empty, got {shortened(line)}; fill it in, or delete the line"
            )
        yield row


_Parse = Callable[[str], tuple[str, str, str]]


def _json_parser(line: str, columns: Columns | None) -> _Parse:
    names = _recognise(list(_json_object(line)), "keys") if columns is None else columns

    def parse(line: str) -> tuple[str, str, str]:
        row = _json_object(line)
        for name in names:
            if name not in row:
                raise ValueError(f"the key {name!r} is missing, got {shortened(line)}; name the keys by --columns")
        first, second, label = (row[name] for name in names)
        if not isinstance(first, str) or not isinstance(second, str):
            raise ValueError(f"{names[0]} and {names[1]} must be strings, got {shortened(line)}; quote them")
        if isinstance(label, bool) or not isinstance(label, str | int | float):
            raise ValueError(f"{names[2]} must be a string or a number, got {label!r}; quote it")
        return first, second, str(label)

    return parse


def _json_object(line: str) -> dict[str, object]:
    try:
        row = json_files.parse(line)
    except ValueError as error:
        raise ValueError(f"a line must be one JSON object, got {shortened(line)} ({error}); fix the line") from error
    if not isinstance(row, dict):
        raise ValueError(f"a line must be one JSON object, got {shortened(line)}; write one pair per line")
    return row


def _column_parser(line: str, columns: Columns | None) -> tuple[_Parse, int]:
    """How a line is parsed into both texts and the label, and how many lines are a header."""
    names = [name.strip() for name in line.split("\t")]
    if columns is not None and all(part.isdecimal() for part in columns):
        places = tuple(int(part) - 1 for part in columns)
        if min(places) < 0 or max(places) >= len(names):
            raise ValueError(f"columns must be from 1 to {len(names)}, got {','.join(columns)}; count from 1")
        # a header names the columns and is no pair
        header = int(_is_header(names))
    elif columns is not None:
        for name in columns:
            known("columns", name, names)
        places, header = tuple(names.index(name) for name in columns), 1
    elif _is_header(names):
        places, header = tuple(names.index(name) for name in _recognise(names, "columns")), 1
    elif len(names) == 3:
        places, header = (1, 2, 0), 0
    else:
        raise ValueError(
            f"a line must be label, tab, text, tab, text, got {len(names)} columns in {shortened(line)}; "
            "name the columns of both texts and the label, such as --columns 2,3,5"
        )

    def parse(line: str) -> tuple[str, str, str]:
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(
                f"a line must have {len(names)} columns, as the first line has, got {len(cells)} in "
                f"{shortened(line)}; replace tabs inside a text by spaces"
            )
        return cells[places[0]], cells[places[1]], cells[places[2]]

    return parse, header


def _is_header(names: Sequence[str]) -> bool:
    lower = {name.lower() for name in names}
    return all(any(name in lower for name in group) for group in KNOWN_COLUMNS[:2])


def _recognise(names: Sequence[str], kind: str) -> Columns:
    """The columns or keys of both texts and of the label, by their usual names."""
    lower = {name.lower(): name for name in names}
    found = [next((lower[name] for name in group if name in lower), None) for group in KNOWN_COLUMNS]
    if None in found:
        part = ("the first text", "the second text", "the label")[found.index(None)]
        raise ValueError(
            f"no {kind} of {part} among {', '.join(map(shortened, names))}; "
            "name both texts and the label, such as --columns sentence1,sentence2,gold_label"
        )
    return Columns(*(name or "" for name in found))
