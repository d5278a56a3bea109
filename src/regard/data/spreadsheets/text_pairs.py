"""The two columns of a sheet of pairs of texts: source and target, or two texts of one meaning.  No torch here."""

from collections.abc import Sequence
from pathlib import Path

from regard.common.wording import shortened
from regard.data.spreadsheets.label_columns import find_column, only, recognise
from regard.data.spreadsheets.pair_columns import KNOWN_COLUMNS
from regard.data.spreadsheets.rows import check_width, read_sheet

# the names of columns that are recognised; the first of each is meant where there are several
SOURCE_NAMES = ("source", "src", "source text", "original", "input", "query", *KNOWN_COLUMNS[0])
TARGET_NAMES = ("target", "tgt", "target text", "translation", "output", "answer", *KNOWN_COLUMNS[1])


def parse_columns(text: str) -> tuple[str, str]:
    """The two columns of "A,B"."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            f"columns must be two names or numbers, of the source and the target, got {text!r}; try columns=de,en"
        )
    return parts[0], parts[1]


def read_sheet_pairs(path: Path, lines: Sequence[str], typed: str | None = None) -> list[tuple[str, str]]:
    """The pairs of a sheet: of the columns that are `typed` as "A,B", by name or by number from 1, of those with usual
    names, or of its only two."""
    sheet = read_sheet(path, lines, has_names=True)
    assert sheet is not None, "with names, every file is a sheet"
    first = sheet.rows[0]
    names = [cell.strip() for cell in first.cells]
    try:
        places, has_header = _places(names, typed)
    except ValueError as error:
        raise ValueError(f"{path}:{first.number}: {error}") from error
    rows = sheet.rows[has_header:]
    check_width(path, sheet, rows, len(names), "header" if has_header else "first line")
    a, b = places
    # a cell may hold several lines, and a pair has one on either side
    return [(" ".join(row.cells[a].split()), " ".join(row.cells[b].split())) for row in rows]


def _places(names: Sequence[str], typed: str | None) -> tuple[tuple[int, int], bool]:
    """Both columns, and whether the first row is a header."""
    usual = [recognise(names, each) for each in (SOURCE_NAMES, TARGET_NAMES)]
    if typed is not None:
        (a, is_name), (b, is_other) = (find_column(names, "text", column) for column in parse_columns(typed))
        if a == b:
            raise ValueError(f"both texts have the same column, {shortened(names[a])}; name two by --columns")
        return (a, b), is_name or is_other or (a in usual[0] and b in usual[1])
    if all(usual):
        return (only(names, usual[0], "source"), only(names, usual[1], "target")), True
    if len(names) != 2:
        raise ValueError(
            f"no columns are known as source and target in {', '.join(map(shortened, names))}; name both by --columns, "
            "such as --columns de,en, or number them from 1"
        )
    return (0, 1), False
