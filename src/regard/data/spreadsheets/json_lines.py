"""JSON lines: one object per line, with the way out for other JSON.  No torch here."""

import json
from collections.abc import Sequence
from pathlib import Path

from regard.common import json_files
from regard.common.wording import shortened

_SUFFIXES = (".jsonl", ".ndjson", ".json")
# characters of a wrong value that an error shows
_SHOWN = 40


def has_json_name(path: Path) -> bool:
    """Whether the name of a file is one of JSON."""
    return path.name.removesuffix(".gz").lower().endswith(_SUFFIXES)


def is_json_lines(path: Path, lines: Sequence[str]) -> bool:
    """Whether a file has an object per line, by its name or its first line; raises for a JSON array."""
    has_name = has_json_name(path)
    start = lines[0].strip()
    is_array = start.startswith("[") and lines[-1].rstrip().endswith("]")
    if is_array and (has_name or start == "[" or start.startswith("[{")):
        raise ValueError(
            f"{path} is a JSON array, and JSON lines are read, one object per line; convert it with: jq -c '.[]' {path}"
        )
    return has_name or start.startswith("{")


def parse_object(line: str) -> dict[str, object]:
    """The object of a line."""
    try:
        row = json_files.parse(line)
    except ValueError as error:
        raise ValueError(f"a line must be one JSON object, got {shortened(line)} ({error}); fix the line") from error
    if not isinstance(row, dict):
        raise ValueError(f"a line must be one JSON object, got {shortened(line)}; write one example per line")
    return row


def text_value(row: dict[str, object], key: str) -> str:
    """The text of a key."""
    value = row[key]
    if not isinstance(value, str):
        raise _wrong(key, value, "a string")
    return value


def label_value(row: dict[str, object], key: str, *, has_fractions: bool = False) -> str:
    """The label of a key: a string or a number."""
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float if has_fractions else str | int):
        raise _wrong(key, value, "a string or a number" if has_fractions else "a string or a whole number")
    return str(value)


def _wrong(key: str, value: object, wanted: str) -> ValueError:
    way_out = "quote it"
    if value is None:
        way_out = "fill it in, or delete the line"
    elif isinstance(value, list):
        way_out = "choose one of the list, or delete the line"
    return ValueError(f"{key} must be {wanted}, got {json.dumps(value, ensure_ascii=False)[:_SHOWN]}; {way_out}")
