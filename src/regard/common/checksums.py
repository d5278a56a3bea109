"""The CRC-32 of a file that contains it, as the entry "checksum" of JSON: computed with zeros in its place.

It is for damage, not for forgery. A CRC-32 notices every flip of one bit and every damage within four bytes.
"""

import mmap
import zlib
from collections.abc import Iterable
from pathlib import Path

NAME = "checksum"
ZEROS = "0" * 8
_CHUNK = 1 << 20


def fill_in(text: bytes, before: bytes = b"", after: Iterable[memoryview] = ()) -> bytes:
    """The text with its checksum, which is zeros so far; the file is `before`, the text, and `after`."""
    checksum = zlib.crc32(text, zlib.crc32(before))
    for chunk in after:
        checksum = zlib.crc32(chunk, checksum)
    return text.replace(_entry(ZEROS), _entry(f"{checksum:08x}"), 1)


def check(content: bytes | mmap.mmap, checksum: object) -> None:
    """Raises ValueError unless this is the checksum of the content, and where `fill_in` writes it."""
    entry = _entry(str(checksum))
    position = content.find(entry)
    if position < 0:
        raise ValueError("its checksum is not where regard writes it")
    with memoryview(content) as whole:
        actual = zlib.crc32(_entry(ZEROS), zlib.crc32(whole[:position]))
        actual = zlib.crc32(whole[position + len(entry) :], actual)
    if f"{actual:08x}" != checksum:
        raise ValueError("its checksum does not match its content, so at least one bit has changed")


def of_file(path: Path) -> str:
    """The checksum of a file that does not contain it."""
    checksum = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


def _entry(checksum: str) -> bytes:
    return f'"{NAME}": "{checksum}"'.encode()
