"""Texts of a sheet or of JSON lines, one per row, as inputs of a model; a header is none of them.  No torch here."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regard.common.wording import plural, shortened
from regard.data.spreadsheets.json_lines import has_json_name, is_json_lines, parse_object, text_value
from regard.data.spreadsheets.label_columns import find_column, only, recognise
from regard.data.spreadsheets.rows import (
    check_width,
    fallback_encoding,
    is_sheet,
    read_sheet,
    read_single_column,
)
from regard.data.text.pairs import read_records


class InputColumn(NamedTuple):
    """A column of an input: the names that are recognised, in lower case, and the name that a training recorded."""

    names: tuple[str, ...]
    recorded: str | None = None


def read_inputs(path: Path, columns: Sequence[InputColumn], typed: Sequence[str] = ()) -> list[str] | None:
    """The inputs of a sheet or of JSON lines, their columns joined by tabs; None for a file with an input per line.

    `.csv` is a sheet, `.tsv` if its first row names the columns, and any file whose columns are `typed`, by name or by
    number from 1. JSON lines are recognised by the name of their file; their keys are the columns.
    """
    if typed and len(typed) != len(columns):
        raise ValueError(
            f"--text-column must name {plural(len(columns), 'column')}, got {','.join(typed)}; separate names by commas"
        )
    if has_json_name(path):
        return _read_objects(path, columns, typed)
    if not typed and not is_sheet(path):
        return None
    windows: list[int] = []
    lines = list(read_records(path, "texts", windows.append, reads_utf16=True, fallback=fallback_encoding(path)))
    sheet = read_single_column(lines) or read_sheet(path, lines, has_names=bool(typed))
    if sheet is None:
        return None
    first = sheet.rows[0]
    names = [cell.strip() for cell in first.cells]
    try:
        places, has_header = _typed_places(names, columns, typed) if typed else _known_places(names, columns)
    except ValueError as error:
        raise ValueError(f"{path}:{first.number}: {error}") from error
    if places is None:
        if sheet.delimiter == "\t":
            return None
        if len(names) != len(columns):
            raise ValueError(
                f"{path}:{first.number}: no column is known as the text in {', '.join(map(shortened, names))}; name it "
                "by --text-column, or number it from 1"
            )
        places = list(range(len(columns)))
    rows = sheet.rows[has_header:]
    check_width(path, sheet, rows, len(names), "header" if has_header else "first line")
    return ["\t".join(row.cells[place].strip() for place in places) for row in rows]


def _read_objects(path: Path, columns: Sequence[InputColumn], typed: Sequence[str]) -> list[str]:
    lines = list(read_records(path, "JSON lines"))
    is_json_lines(path, lines)
    inputs = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse_object(line)
            keys = list(row)
            places, _ = _typed_places(keys, columns, typed) if typed else _known_places(keys, columns)
            if places is None:
                names = ", ".join(map(shortened, keys)) or "{}"
                raise ValueError(f"no key is known as the text in {names}; name it by --text-column")
            inputs.append("\t".join(text_value(row, keys[place]).strip() for place in places))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return inputs


def _typed_places(names: Sequence[str], columns: Sequence[InputColumn], typed: Sequence[str]) -> tuple[list[int], bool]:
    """The columns by name or by number, and whether the first row is a header: it names one, or has usual names."""
    places, are_names = zip(*(find_column(names, "text", column) for column in typed), strict=True)
    is_usual = all(names[place].lower() in column.names for place, column in zip(places, columns, strict=True))
    return list(places), any(are_names) or is_usual


def _known_places(names: Sequence[str], columns: Sequence[InputColumn]) -> tuple[list[int] | None, bool]:
    """The columns that have the recorded or a usual name; None if one has neither."""
    lower = [name.lower() for name in names]
    places = []
    for column in columns:
        recorded = (column.recorded or "").lower()
        if recorded in lower:
            places.append(lower.index(recorded))
            continue
        usual = recognise(names, column.names)
        if not usual:
            return None, False
        number = int(recorded) if recorded.isdecimal() else 0
        if 0 < number <= len(names) and number - 1 not in usual:
            raise ValueError(
                f"the training read the texts of column {number}, which is {names[number - 1]!r} here, and "
                f"{names[usual[0]]!r} is a usual name of texts; name one by --text-column"
            )
        places.append(number - 1 if number - 1 in usual else only(names, usual, "text"))
    return places, True
