"""JSON from files: every error of parsing is a ValueError, and files of our own carry a checksum."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.common import checksums


def parse(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError if it is none, also if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def with_checksum(content: Mapping[str, Any]) -> bytes:
    """The content as JSON in lines, with its format first and its checksum second."""
    content = {"format": content["format"], checksums.NAME: checksums.ZEROS, **content, checksums.NAME: checksums.ZEROS}
    return checksums.fill_in(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")


def check_format(path: Path, version: int, expected: int) -> None:
    """Raises unless a file has the format that this version reads."""
    if version != expected:
        raise ValueError(
            f"{path} has format {version}, this version reads format {expected}; "
            "open it with the version of regard that wrote it"
        )
