"""Pairs of texts with one class each, from files: JSON lines, columns separated by tabs, CSV of spreadsheets.

    {"gold_label": "neutral", "sentence1": "Two women are embracing.", "sentence2": "The sisters are hugging."}
    neutral <tab> Two women are embracing. <tab> The sisters are hugging.

A first line of columns with known names, such as sentence_A, sentence_B and entailment_judgment, is a header.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.common.suggestions import known
from regard.common.word_splitting import split_words
from regard.common.wording import plural, shortened
from regard.data.splitting import Parts, check_labels, relabel
from regard.data.spreadsheets.json_lines import is_json_lines, label_value, parse_object, text_value
from regard.data.spreadsheets.pair_columns import KNOWN_COLUMNS, Columns
from regard.data.spreadsheets.rows import (
    SheetRow,
    check_header,
    check_width,
    fallback_encoding,
    is_sheet,
    read_sheet,
)
from regard.data.text.pairs import read_records
from regard.data.unseen_labels import number_labels

_HOLDS = "label, tab, text, tab, text, one pair per line, or JSON lines with the keys gold_label, sentence1, sentence2"
_NAME = "name both texts and the label, such as --columns sentence1,sentence2,gold_label, or number them from 1"
# columns of the two texts and the label in a file of three columns without a header
_PLACES = ((1, 2, 0), (0, 1, 2))
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
    num_windows: int = 0  # lines of a sheet that are not UTF-8 and were read as Windows-1252

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
        return replace(self, first=first, second=second, labels=self.labels[index])

    @property
    def lines(self) -> list[str]:
        """Every pair as a line: label, tab, first text, tab, second text."""
        labels = [self.classes[n] for n in self.labels.tolist()]
        return [f"{each}\t{a}\t{b}" for each, a, b in zip(labels, self.first, self.second, strict=True)]


PairSplits = Parts[LabelledPairs]


def read_labelled_pairs(
    path: Path,
    classes: Sequence[str] | None = None,
    columns: Columns | None = None,
    max_length: int | None = None,
    *,
    refuses_unseen: bool = False,
) -> LabelledPairs:
    """The pairs of a UTF-8 file, `.gz` unpacked; the first line decides the format.

    Classes are the labels in the file, sorted. With `classes`, such as those of a trained model, labels have their
    numbers, and others are classes behind these, or an error if it `refuses_unseen`. Pairs with the label "-" are left
    out and counted. A text of more than `max_length` words is an error.
    """
    windows: list[int] = []
    # lines that are not UTF-8 are an error, unless a spreadsheet wrote them
    lines = read_records(
        path, _HOLDS, windows.append if is_sheet(path) else None, reads_utf16=True, fallback=fallback_encoding(path)
    )
    rows = list(_rows(path, list(lines), columns, classes))
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
    numbered = [(row.number, row.label) for row in labelled]
    labels, classes = number_labels(path, numbered, classes, refuses_unseen, "pairs", _NAME)
    first, second = [row.first for row in labelled], [row.second for row in labelled]
    return LabelledPairs(first, second, labels, classes, len(rows) - len(labelled), len(windows))


def with_pair_classes(data: LabelledPairs, classes: Sequence[str], name: str) -> LabelledPairs:
    """The same pairs with the numbers of these classes, which must have all labels of the data called `name`."""
    return replace(data, labels=relabel(data.labels, data.classes, classes, name), classes=tuple(classes))


def count_words(text: str, most: int) -> int:
    """The number of words and marks; 0 for a text that is too short to have more than `most`."""
    return len(split_words(text)[0]) if len(text) > most else 0


class _PairRow(NamedTuple):
    number: int  # number of the line
    first: str
    second: str
    label: str


def _rows(
    path: Path, lines: Sequence[str], columns: Columns | None, classes: Sequence[str] | None
) -> Iterator[_PairRow]:
    is_json = is_json_lines(path, lines)
    for row, line in _json_rows(path, lines, columns) if is_json else _sheet_rows(path, lines, columns, classes):
        empty = next((name for name in ("first", "second", "label") if not getattr(row, name)), None)
        if empty is not None:
            part = empty if empty == "label" else f"{empty} text"
            raise ValueError(
                f"{path}:{row.number}: the {part} is empty, got {shortened(line)}; fill it in, or delete the line"
            )
        yield row


def _json_rows(path: Path, lines: Sequence[str], columns: Columns | None) -> Iterator[tuple[_PairRow, str]]:
    number = 1
    try:
        names = _recognise(list(parse_object(lines[0])), "keys") if columns is None else columns
        for number, line in enumerate(lines, 1):
            row = parse_object(line)
            for name in names:
                if name not in row:
                    raise ValueError(f"the key {name!r} is missing, got {shortened(line)}; name the keys by --columns")
            first, second = (text_value(row, name).strip() for name in names[:2])
            yield _PairRow(number, first, second, label_value(row, names.label, has_fractions=True).strip()), line
    except ValueError as error:
        raise ValueError(f"{path}:{number}: {error}") from error


def _sheet_rows(
    path: Path, lines: Sequence[str], columns: Columns | None, classes: Sequence[str] | None
) -> Iterator[tuple[_PairRow, str]]:
    sheet = read_sheet(path, lines, has_names=columns is not None)
    first = SheetRow(1, [lines[0]]) if sheet is None else sheet.rows[0]
    try:
        places, has_header = _places(first.cells, columns)
        if sheet is None:
            raise _unknown_columns(first.cells)
        rows = sheet.rows[has_header:]
        if not rows:
            raise ValueError(f"the file has a header and no pairs; it must hold {_HOLDS}")
    except ValueError as error:
        raise ValueError(f"{path}:{first.number}: {error}") from error
    check_width(path, sheet, rows, len(first.cells), "header" if has_header else "first line")
    if places is None:
        # a file with tabs has the label first; CSV has it where cells repeat
        places = _PLACES[0] if sheet.delimiter == "\t" else _find_places(path, rows, classes)
    if not has_header and (classes is None or rows[0].cells[places[2]].strip() not in classes):
        is_certain = sheet.delimiter == "\t" or columns is not None
        check_header(path, rows, places[2], places[0], _NAME, is_certain)
    for row in rows:
        yield (
            _PairRow(row.number, *(row.cells[place].strip() for place in places)),
            sheet.delimiter.join(row.cells),
        )


def _find_places(path: Path, rows: Sequence[SheetRow], classes: Sequence[str] | None) -> tuple[int, int, int]:
    """Both texts and the label of three columns: the label is first or last, and has known classes or repeats."""
    candidates = []
    for places in _PLACES:
        cells = [row.cells[places[2]].strip() for row in rows]
        if any(cell in classes for cell in cells) if classes else 2 * len(set(cells)) <= len(cells):
            candidates.append(places)
    if len(candidates) != 1:
        seen = ", ".join(map(shortened, rows[0].cells))
        raise ValueError(f"{path}:{rows[0].number}: no column is known as the label in {seen}; {_NAME}")
    return candidates[0]


def _places(names: Sequence[str], columns: Columns | None) -> tuple[tuple[int, int, int] | None, bool]:
    """The columns of both texts and the label, None if they are to be found, and whether the first row is a header."""
    names = [name.strip() for name in names]
    if columns is not None and all(part.isdecimal() for part in columns):
        first, second, label = (int(part) - 1 for part in columns)
        if min(first, second, label) < 0 or max(first, second, label) >= len(names):
            raise ValueError(f"columns must be from 1 to {len(names)}, got {','.join(columns)}; count from 1")
        # a header names the columns and is no pair
        return (first, second, label), _is_header(names)
    if columns is None and not _is_header(names):
        if len(names) != 3:
            raise _unknown_columns(names)
        return None, False
    lower = [name.lower() for name in names]
    wanted = _recognise(names, "columns") if columns is None else columns
    for name in wanted:
        if name not in names and name.lower() not in lower:
            known("columns", name, names)
    first, second, label = (names.index(name) if name in names else lower.index(name.lower()) for name in wanted)
    return (first, second, label), True


def _unknown_columns(cells: Sequence[str]) -> ValueError:
    return ValueError(
        f"a line must be label, tab, text, tab, text, got {plural(len(cells), 'column')} in "
        f"{', '.join(map(shortened, cells))}; {_NAME}"
    )


def _is_header(names: Sequence[str]) -> bool:
    lower = {name.lower() for name in names}
    return all(any(name in lower for name in group) for group in KNOWN_COLUMNS[:2])


def _recognise(names: Sequence[str], kind: str) -> Columns:
    """The columns or keys of both texts and of the label, by their usual names."""
    lower = {name.lower(): name for name in names}
    columns = [next((lower[name] for name in group if name in lower), None) for group in KNOWN_COLUMNS]
    if None in columns:
        part = ("the first text", "the second text", "the label")[columns.index(None)]
        raise ValueError(
            f"no {kind} of {part} among {', '.join(map(shortened, names))}; "
            "name both texts and the label, such as --columns sentence1,sentence2,gold_label"
        )
    return Columns(*(name or "" for name in columns))
