"""Rows of CSV and TSV files as spreadsheets write them: quotes, delimiters, a line `sep=;`.  No torch here."""

import csv
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

# prose has more commas than semicolons, and hardly a tab: where several delimiters fit, the rarest is meant
_DELIMITERS = ("\t", ";", ",")
_SEPARATOR_LINE = "sep="


class SheetRow(NamedTuple):
    """The cells of a row, and the number of the line where it begins."""

    number: int
    cells: list[str]


class Sheet(NamedTuple):
    """The rows that are not blank, and the delimiter of their cells."""

    delimiter: str
    rows: list[SheetRow]


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


def unquote_tabs(lines: Sequence[str]) -> list[SheetRow] | None:
    """The rows of lines with tabs whose quotes are those of a spreadsheet; None if quotes are part of the texts.

    They are a spreadsheet's if writing the rows again gives the same lines.
    """
    if not any('"' in line for line in lines):
        return None
    try:
        rows = list(_parse(lines, "\t"))
    except ValueError:
        return None
    for is_quoted in _STYLES:
        written = "\n".join("\t".join(_quote(cell, is_quoted) for cell in row.cells) for row in rows)
        if written.split("\n") == list(lines):
            return rows
    return None


def _num_regular(sheet: Sheet) -> int:
    """The number of rows that have as many columns as the first."""
    return sum(len(row.cells) == len(sheet.rows[0].cells) for row in sheet.rows)


def _parse(lines: Sequence[str], delimiter: str) -> Iterator[SheetRow]:
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
