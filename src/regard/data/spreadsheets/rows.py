"""Rows of CSV and TSV files as spreadsheets write them: quotes, delimiters, a line `sep=;`.  No torch here."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from regard.common.wording import shortened

# prose has more commas than semicolons, and hardly a tab: where several delimiters fit, the rarest is meant
_DELIMITERS = ("\t", ";", ",")
_SEPARATOR_LINE = "sep="
# characters of a cell, as many as csv can count on every system
_MAX_CELL = (1 << 31) - 1
# fewer rows than this may all have a class of their own
_FEW = 10


class SheetRow(NamedTuple):
    """The cells of a row, and the number of the line where it begins."""

    number: int
    cells: list[str]


class Sheet(NamedTuple):
    """The rows that are not blank, and the delimiter of their cells."""

    delimiter: str
    rows: list[SheetRow]


def is_sheet(path: Path) -> bool:
    """Whether the name of a file says that a spreadsheet wrote it."""
    return path.name.removesuffix(".gz").lower().endswith((".csv", ".tsv"))


def fallback_encoding(path: Path) -> str:
    """The encoding of lines that are not UTF-8: that of Windows in sheets, Latin-1 in older collections."""
    return "Windows-1252" if is_sheet(path) else "Latin-1"


def read_sheet(path: Path, lines: Sequence[str], *, has_names: bool) -> Sheet | None:
    """The rows of a file in columns: `.csv`, lines with tabs, or, if columns are named, any; None for other lines."""
    has_tab = any("\t" in line for line in lines)
    is_csv = path.name.removesuffix(".gz").lower().endswith(".csv")
    if is_csv or (has_names and not has_tab):
        try:
            return read_csv(lines)
        except ValueError as error:
            # lines with tabs in a file of that name may have quotes of their own
            if not all("\t" in line for line in lines if line.strip()):
                raise ValueError(f"{path}:{error}") from error
    if not has_tab:
        return None
    rows = unquote_tabs(lines)
    skips_blank = is_sheet(path) or rows is not None
    rows = rows or [SheetRow(n, line.split("\t")) for n, line in enumerate(lines, 1)]
    return Sheet("\t", [row for row in rows if not skips_blank or any(map(str.strip, row.cells))])


def check_width(path: Path, sheet: Sheet, rows: Sequence[SheetRow], width: int, like: str) -> None:
    """Raises at the first row that has not as many columns; `like` names the row that has: "header", "first line"."""
    for row in rows:
        if len(row.cells) != width:
            way_out = "replace tabs inside a text by spaces" if sheet.delimiter == "\t" else "put the text in quotes"
            raise ValueError(
                f"{path}:{row.number}: a line must have {width} columns, as the {like} has, got {len(row.cells)} in "
                f"{shortened(sheet.delimiter.join(row.cells))}; {way_out}"
            )


def check_header(path: Path, rows: Sequence[SheetRow], label: int, text: int, way_out: str, is_certain: bool) -> None:
    """Raises if the first row is a header with unknown names: its label occurs once.

    The only row of a class may also be the first of a file: where the columns are certain, it is a header if every
    other label occurs again, and its text is shorter than most.
    """
    labels = Counter(row.cells[label].strip() for row in rows)
    first = rows[0]
    if labels[first.cells[label].strip()] > 1 or len(rows) < 3:
        return
    if is_certain:
        middle = median(len(row.cells[text].strip()) for row in rows)
        is_alone = sum(count == 1 for count in labels.values()) == 1
        if len(rows) < _FEW // 2 or not is_alone or len(first.cells[text].strip()) >= middle:
            return
    raise ValueError(
        f"{path}:{first.number}: the first row, {', '.join(map(shortened, first.cells))}, may be a header, for no "
        f"other row has its label; if it is one, {way_out}, if not, move the row down"
    )


def check_classes(path: Path, classes: Sequence[str], count: int, unit: str, way_out: str) -> None:
    """Raises if most of the `count` labels differ: then they are no classes."""
    if count >= _FEW and 2 * len(classes) > count:
        raise ValueError(
            f"{path} has {len(classes):,} classes for {count:,} {unit}, such as "
            f"{', '.join(map(shortened, classes[:3]))}; if its labels are elsewhere, {way_out}"
        )


def read_csv(lines: Sequence[str]) -> Sheet:
    """The rows of a CSV file; of comma, semicolon and tab, the delimiter is the one that gives most rows the columns of
    the first. Raises ValueError, which begins with the number of a line where there is one.
    """
    # spreadsheets on old Macs end lines by a carriage return alone
    lines = [part for line in lines for part in line.split("\r")]
    delimiters: Sequence[str] = _DELIMITERS
    start = lines[0].strip('"').lower()
    is_named = start.startswith(_SEPARATOR_LINE) and len(start) == len(_SEPARATOR_LINE) + 1
    if is_named:
        delimiters = start[-1]
        lines = ["", *lines[1:]]
    sheets, errors = [], {}
    for delimiter in delimiters:
        try:
            rows = [row for row in _parse(lines, delimiter) if any(map(str.strip, row.cells))]
        except ValueError as error:
            errors[delimiter] = error
            continue
        if rows and len(rows[0].cells) > 1:
            sheets.append(Sheet(delimiter, rows))
    if sheets:
        return max(sheets, key=_num_regular)
    if errors:
        raise errors[max(errors, key="".join(lines).count)]
    raise ValueError("1: a row must have two columns or more, separated by commas, semicolons or tabs, got one")


def read_single_column(lines: Sequence[str]) -> Sheet | None:
    """The rows of a file of one column; None if its first row has more. Commas are then part of the texts."""
    try:
        if any(len(next(_parse(lines, delimiter)).cells) > 1 for delimiter in _DELIMITERS):
            return None
        return Sheet("\n", [row for row in _parse(lines, "\t") if any(map(str.strip, row.cells))])
    except ValueError:
        return None


def unquote_tabs(lines: Sequence[str]) -> list[SheetRow] | None:
    """The rows of lines with tabs whose quotes are those of a spreadsheet; None if quotes are part of the texts.

    They are a spreadsheet's if writing the rows again gives the same lines, and no cell holds lines that are rows
    themselves: a text that begins with a quotation mark, and a later one that ends with one, are two texts.
    """
    if not any('"' in line for line in lines):
        return None
    try:
        rows = list(_parse(lines, "\t"))
    except ValueError:
        return None
    for start, end in pairwise([*(row.number - 1 for row in rows), len(lines)]):
        if end - start > 1 and all(line.count("\t") == lines[0].count("\t") for line in lines[start:end]):
            return None
    for is_quoted in _STYLES:
        copy = "\n".join("\t".join(_quote(cell, is_quoted) for cell in row.cells) for row in rows)
        if copy.split("\n") == list(lines):
            return rows
    return None


def _num_regular(sheet: Sheet) -> int:
    """The number of rows that have as many columns as the first."""
    return sum(len(row.cells) == len(sheet.rows[0].cells) for row in sheet.rows)


def _parse(lines: Sequence[str], delimiter: str) -> Iterator[SheetRow]:
    # a document may be longer than the 131,072 characters that csv takes; lines are bounded where they are read
    csv.field_size_limit(_MAX_CELL)
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(
                f"{number}: the row is not CSV ({error}); put quotes around the whole text, and double those inside"
            ) from error
        yield SheetRow(number, cells)


def _has(characters: str) -> Callable[[str], bool]:
    return lambda cell: any(character in cell for character in characters)


def _is_text(cell: str) -> bool:
    return not cell.strip().lstrip("-").replace(".", "", 1).isdecimal()


# cells that a writer of tab-separated rows quotes: as few as it can, those with commas too (Excel), all texts, all
_STYLES: tuple[Callable[[str], bool], ...] = (_has('\t"\n'), _has('\t"\n,'), _is_text, lambda _: True)


def _quote(cell: str, is_quoted: Callable[[str], bool]) -> str:
    return '"' + cell.replace('"', '""') + '"' if is_quoted(cell) else cell
