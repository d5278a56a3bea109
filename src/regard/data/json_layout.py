"""JSON files of a published layout: parsed with their errors as sentences, and read key by key.  No torch here."""

import gzip
import reprlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.common import json_files
from regard.data.gzip_bound import max_unpacked, unpack_error
from regard.data.text.pairs import check_is_file

_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}


@dataclass(frozen=True)
class JsonLayout:
    """A UTF-8 file, `.gz` unpacked, and a clause on the layouts that it may have, for errors."""

    path: Path
    layouts: str

    def parse(self) -> Any:
        """The value of the file."""
        path = self.path
        check_is_file(path)
        try:
            content = _unpacked(path) if path.suffix == ".gz" else path.read_bytes()
            # utf-8-sig: a byte order mark in front is no part of the JSON
            text = content.decode("utf-8-sig")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} cannot be unpacked ({error}); pack it again with gzip") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: byte {error.start + 1:,} is not UTF-8; convert it to UTF-8") from error
        if not text.strip():
            raise ValueError(f"{path} is empty; {self.layouts}")
        try:
            return json_files.parse(text)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON ({error}); {self.layouts}") from error

    def get(self, item: Any, key: str, kind: type, place: str) -> Any:
        """The value of a key, which must be of this kind."""
        if key not in item:
            raise ValueError(f"{self.path}: {place} has no {key!r}; {self.layouts}; convert it")
        return self.checked(item[key], kind, f"{key!r} of {place}")

    def checked(self, value: Any, kind: type, place: str) -> Any:
        """The value, which must be of this kind."""
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(
                f"{self.path}: {place} must be {_KINDS[kind]}, got {reprlib.repr(value)}; {self.layouts}; convert it"
            )
        return value

    def texts(self, value: Any, place: str) -> list[str]:
        """The value, which must be a list of texts."""
        return [self.checked(item, str, place) for item in self.checked(value, list, place)]

    def text(self, item: Any, key: str, place: str) -> str:
        """The text of a key, of whole characters."""
        value: str = self.get(item, key, str, place)
        half = next((n for n, character in enumerate(value) if "\ud800" <= character <= "\udfff"), None)
        if half is not None:
            raise ValueError(
                f"{self.path}: {key!r} of {place} holds half a character (a lone surrogate) at {half:,}; write it whole"
            )
        return value


def _unpacked(path: Path) -> bytes:
    max_bytes = max_unpacked(path)
    with gzip.open(path, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise unpack_error(path, ":")
    return content
