"""Labelled texts: files with one label and one text per line.  No torch here.

label, tab, text             one per line; where the file has no tab, the first space separates them
CSV or TSV with a header     the columns `label` and `text`, or others by name; the rest is ignored
CSV without a header         two columns: the labels are in the one that repeats its cells
JSON lines                   objects with the keys `label` and `text`, or others by name; the rest is ignored
JSON with parts              one object whose keys `train`, `val` and `test` have lists of [text, label] (CLINC150);
                             other keys, such as texts that are out of scope, are ignored
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.common import json_files
from regard.common.wording import shortened
from regard.data.splitting import SPLIT_NAMES, Parts, Split, check_labels, relabel
from regard.data.spreadsheets.json_lines import is_json_lines, label_value, parse_object, text_value
from regard.data.spreadsheets.label_columns import TextColumns, find_places
from regard.data.spreadsheets.rows import (
    Sheet,
    SheetRow,
    check_header,
    check_width,
    fallback_encoding,
    read_sheet,
)
from regard.data.text.pairs import read_records
from regard.data.unseen_labels import number_labels

_HOLDS = "label, tab, text, one of each per line, or JSON lines with the keys label and text"
_NAME = "name the columns by --label-column and --text-column"
_NUMBER = f"{_NAME}, or number them from 1"


@dataclass(frozen=True, eq=False)
class LabelledTexts:
    """Texts with one class each and, where it is known, the number of the sentence that decides the class."""

    texts: Sequence[str]
    labels: NDArray[np.int64]  # "n"
    classes: tuple[str, ...]
    evidence: NDArray[np.int64] | None = None  # "n"
    num_latin1: int = 0  # lines of the file that are not UTF-8 and were read as Latin-1, or by another `fallback`
    fallback: str = "Latin-1"

    def __post_init__(self) -> None:
        for name, numbers in (("labels", self.labels), ("evidence", self.evidence)):
            if numbers is not None and len(numbers) != len(self.texts):
                raise ValueError(
                    f"{name} must be one per text, got {len(numbers)} for {len(self.texts)} texts; give as many"
                )
        check_labels(self.labels, self.classes, "text")

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: NDArray[np.int64]) -> "LabelledTexts":
        evidence = None if self.evidence is None else self.evidence[index]
        texts = [self.texts[n] for n in index.tolist()]
        return LabelledTexts(texts, self.labels[index], self.classes, evidence, self.num_latin1, self.fallback)


LabelledSplits = Parts[LabelledTexts]


def read_labelled(
    path: Path,
    classes: Sequence[str] | None = None,
    part: Split = "train",
    columns: TextColumns = TextColumns(),
    *,
    refuses_unseen: bool = False,
) -> LabelledTexts:
    """The texts of a UTF-8 file, `.gz` unpacked, in any of the formats; the first line decides which, and `.csv` names
    CSV. Of a file with parts it is this `part`. `columns` are those of a sheet, or the keys of JSON lines.

    Classes are the labels in the file, sorted; more than one for two texts is an error. With `classes`, such as those
    of a trained model, labels have their numbers, and others are classes behind these, or an error if it
    `refuses_unseen`. Lines that are not UTF-8 are read as Latin-1, as older collections (TREC) need it, those of `.csv`
    and `.tsv` as Windows' cp1252, and counted in `num_latin1`. UTF-16 is read where its mark begins the file.
    """
    latin1: list[int] = []
    fallback = fallback_encoding(path)
    lines = list(read_records(path, _HOLDS, latin1.append, reads_utf16=True, fallback=fallback))
    rows = list(_rows(path, lines, part, columns, classes))
    numbered = [(row.number, row.label) for row in rows]
    labels, classes = number_labels(path, numbered, classes, refuses_unseen, "texts", _NUMBER)
    texts = [row.text for row in rows]
    return LabelledTexts(texts, labels, classes, num_latin1=len(latin1), fallback=fallback)


def with_classes(data: LabelledTexts, classes: Sequence[str], name: str) -> LabelledTexts:
    """The same texts with the numbers of these classes, which must have all labels of the data called `name`."""
    labels = relabel(data.labels, data.classes, classes, name)
    return LabelledTexts(data.texts, labels, tuple(classes), data.evidence, data.num_latin1, data.fallback)


class _LabelledRow(NamedTuple):
    number: int  # the line
    label: str
    text: str


def _rows(
    path: Path, lines: Sequence[str], part: Split, columns: TextColumns, classes: Sequence[str] | None
) -> Iterator[_LabelledRow]:
    if (parts := _parts(lines)) is not None:
        yield from _part_rows(path, parts, part)
        return
    if is_json_lines(path, lines):
        yield from _parsed(path, lines, lambda line: _parse_json(line, columns))
        return
    sheet = read_sheet(path, lines, has_names=columns.is_set)
    if sheet is None:
        _check_words(path, lines)
        yield from _parsed(path, lines, _parse_space)
        return
    yield from _sheet_rows(path, sheet, columns, classes)


def _sheet_rows(
    path: Path, sheet: Sheet, columns: TextColumns, classes: Sequence[str] | None
) -> Iterator[_LabelledRow]:
    first = sheet.rows[0]
    try:
        label, text, has_header = find_places(first.cells, columns)
    except ValueError as error:
        raise ValueError(f"{path}:{first.number}: {error}") from error
    rows = sheet.rows[has_header:]
    if not rows:
        raise ValueError(f"{path} has a header and no texts; it must hold {_HOLDS}")
    # the text behind the first tab may hold tabs if there is no header
    is_pair = sheet.delimiter == "\t" and not has_header and not columns.is_set
    if is_pair:
        label, text = 0, 1
        rows = [row._replace(cells=_split_label(path, row)) for row in rows]
    width = 2 if is_pair else len(first.cells)
    check_width(path, sheet, rows, width, "header" if has_header else "first line")
    if label is None and text is None and width == 2:
        label = _label_place(rows, classes)
        text = None if label is None else 1 - label
    if label is None or text is None:
        seen = ", ".join(map(shortened, first.cells))
        missing = " and ".join(f"the {name}" for name, at in (("label", label), ("text", text)) if at is None)
        raise ValueError(f"{path}:{first.number}: no column is known as {missing} in {seen}; {_NUMBER}")
    if not has_header and (classes is None or rows[0].cells[label].strip() not in classes):
        check_header(path, rows, label, text, _NAME, is_certain=is_pair or columns.is_set)
    for row in rows:
        line = sheet.delimiter.join(row.cells)
        yield _checked(path, _LabelledRow(row.number, row.cells[label].strip(), row.cells[text].strip()), line)


def _split_label(path: Path, row: SheetRow) -> list[str]:
    """The label, and the rest of the line."""
    if len(row.cells) < 2:
        raise ValueError(
            f"{path}:{row.number}: a line must be label, tab, text, got no tab in {shortened(row.cells[0])}; "
            "other lines have one"
        )
    return [row.cells[0], "\t".join(row.cells[1:])]


def _label_place(rows: Sequence[SheetRow], classes: Sequence[str] | None) -> int | None:
    """The one of two columns that has the known classes, or repeats its cells; None if both or neither do."""
    cells = [[row.cells[n].strip() for row in rows] for n in range(2)]
    if classes is None:
        has_labels = [2 * len(set(column)) <= len(column) for column in cells]
    else:
        has_labels = [any(cell in classes for cell in column) for column in cells]
    return has_labels.index(True) if sum(has_labels) == 1 else None


def _check_words(path: Path, lines: Sequence[str]) -> None:
    """Raises for lines without tabs whose first words are no labels: CSV, or a header."""
    words = [line.strip().partition(" ")[0] for line in lines]
    joined = [word for word in words if any(mark in word.strip(",;") for mark in ",;")]
    if 3 * len(joined) > len(words):
        raise ValueError(
            f"{path} has no tab, and in {len(joined):,} of {len(words):,} lines the first word, which would be the "
            f"label, has a comma or semicolon, such as {shortened(joined[0])}; if it is CSV, {_NUMBER}"
        )
    if sorted(lines[0].lower().split()) == ["label", "text"]:
        raise ValueError(
            f"{path}:1: {shortened(lines[0])} is a header, and no tab separates the columns; delete the line, or "
            "separate them by tabs"
        )


def _parsed(path: Path, lines: Sequence[str], parse: Callable[[str], tuple[str, str]]) -> Iterator[_LabelledRow]:
    for number, line in enumerate(lines, 1):
        try:
            row = _LabelledRow(number, *parse(line))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        yield _checked(path, row, line)


def _checked(path: Path, row: _LabelledRow, line: str) -> _LabelledRow:
    if not row.label or not row.text:
        raise ValueError(
            f"{path}:{row.number}: the {'text' if row.label else 'label'} is empty, got {shortened(line)}; "
            "fill it in, or delete the line"
        )
    return row


def _parts(lines: Sequence[str]) -> dict[str, Any] | None:
    """The object of a file with parts; None if every line is a text of its own."""
    if not lines[0].lstrip().startswith("{") or (len(lines) > 1 and lines[0].rstrip().endswith("}")):
        return None
    try:
        content = json_files.parse("\n".join(lines))
    except ValueError:
        return None
    return content if isinstance(content, dict) and "train" in content else None


def _part_rows(path: Path, parts: Mapping[str, Any], part: Split) -> Iterator[_LabelledRow]:
    name = next((name for name in SPLIT_NAMES[part] if name in parts), None)
    if name is None:
        names = ", ".join(sorted(parts))
        raise ValueError(f"{path} has no part {SPLIT_NAMES[part][0]!r}, only {names}; name a file that has one")
    rows = parts[name]
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: the part {name!r} must be a list of [text, label], got {shortened(repr(rows))}")
    for number, row in enumerate(rows, 1):
        is_pair = (
            isinstance(row, list) and len(row) == 2 and all(isinstance(each, str) and each.strip() for each in row)
        )
        if not is_pair:
            raise ValueError(
                f"{path}: item {number} of the part {name!r} must be [text, label], two strings that are not empty, "
                f"got {shortened(repr(row))}; correct it"
            )
        yield _LabelledRow(number, row[1].strip(), row[0].strip())


def _parse_json(line: str, columns: TextColumns) -> tuple[str, str]:
    label_key, text_key = columns.label or "label", columns.text or "text"
    row = parse_object(line)
    if not {label_key, text_key} <= row.keys():
        raise ValueError(
            f"a line must be a JSON object with the keys {label_key} and {text_key}, got {shortened(line)}; "
            "name its keys by --label-column and --text-column"
        )
    return label_value(row, label_key).strip(), text_value(row, text_key).strip()


def _parse_space(line: str) -> tuple[str, str]:
    label, _, text = line.strip().partition(" ")
    return label, text.strip()
