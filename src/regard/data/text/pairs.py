"""Pairs of source and target lines from files, with errors that name the file and the line."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader, TextIOWrapper
from itertools import zip_longest
from pathlib import Path

from regard.data.gzip_bound import max_unpacked, unpack_error
from regard.data.spreadsheets.rows import fallback_encoding
from regard.data.spreadsheets.text_pairs import read_sheet_pairs
from regard.data.text.lines import HELD, Lines

# bytes of a line: a longer one is a file of another kind, and must not fill the memory
MAX_LINE = 1 << 24
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_ZERO_BYTES = "UTF-16 or of no text; convert text, as in: iconv -f utf16le -t utf8, or name a text file"
# the first bytes of files that are no text, as many as no text begins with
_SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"PK\x03\x04": "a ZIP archive or an office document",
    b"%PDF-": "a PDF document",
    b"\x1f\x8b": "packed by gzip and has no suffix .gz",
    b"BZh91AY&SY": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
}


@dataclass(frozen=True)
class Pairs:
    """Line n of the source belongs to line n of the target; `references`, if given, are all correct targets of each
    line.
    """

    source: Sequence[str]
    target: Sequence[str]
    references: Sequence[Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(
                f"source and target must have a line for each other, got {len(self.source)} and {len(self.target)} "
                "lines; pair them first"
            )
        if self.references is not None and len(self.references) != len(self.target):
            raise ValueError(
                f"references must be one sequence per line for {len(self.target)} lines, got {len(self.references)}; "
                "give every line its own, or None"
            )

    def __len__(self) -> int:
        return len(self.source)

    @property
    def answers(self) -> Sequence[Sequence[str]]:
        """All correct targets of each line: the references, or the target alone."""
        return [(line,) for line in self.target] if self.references is None else self.references


@dataclass(frozen=True)
class Splits:
    """Pairs for training, validation and test: no source of one part is in another."""

    train: Pairs
    valid: Pairs
    test: Pairs
    # indices of the training lines, in order, that were moved to `valid`
    held: tuple[int, ...] = field(default=(), kw_only=True)


def read_pairs(
    paths: Sequence[Path],
    *,
    held: int = HELD,
    columns: str = "source, tab, target",
    names: str | None = None,
) -> Pairs:
    """Pairs from one file, source and target separated by a tab, or from two files, line by line; `.gz` is unpacked.
    A file that ends in `.csv`, or whose columns have `names`, "A,B", is a sheet.

    UTF-8. Only a line feed ends a line (with or without a carriage return before it): Unicode's other separators are
    text. Memory holds `held` bytes per side; longer text is stored in a temporary file. Errors describe a
    line by `columns`.
    """
    if isinstance(paths, str | Path):
        raise TypeError(f"paths must be a list of one or two files, got {str(paths)!r}; write [path]")
    paths = [Path(path) for path in paths]
    source, target = Lines(held), Lines(held)
    if len(paths) > 1 and names is not None:
        raise ValueError(f"columns={names} are those of one sheet, got {len(paths)} files; give one, or leave them out")
    if len(paths) == 1 and (names is not None or paths[0].name.removesuffix(".gz").lower().endswith(".csv")):
        fallback = fallback_encoding(paths[0])
        lines = list(read_records(paths[0], "pairs", lambda number: None, reads_utf16=True, fallback=fallback))
        for first, second in read_sheet_pairs(paths[0], lines, names):
            source.add(first)
            target.add(second)
    elif len(paths) == 1:
        for number, line in enumerate(read_records(paths[0], f"{columns}, one pair per line"), 1):
            parts = line.split("\t")
            if len(parts) != 2:
                raise ValueError(
                    f"{paths[0]}:{number}: a line must be {columns}, got {len(parts) - 1} tabs; "
                    + ("keep two columns with: cut -f1,2" if len(parts) > 2 else "or pass two files, one per column")
                )
            source.add(parts[0])
            target.add(parts[1])
    elif len(paths) == 2:
        for source_line, target_line in zip_longest(*map(read_lines, paths)):
            if source_line is not None:
                source.add(source_line)
            if target_line is not None:
                target.add(target_line)
        if len(source) != len(target):
            shorter, longer = sorted(((len(source), paths[0]), (len(target), paths[1])))
            raise ValueError(
                f"{shorter[1]} ends at line {shorter[0]}, {longer[1]} has {longer[0]} lines; "
                "line n of one must belong to line n of the other"
            )
    else:
        raise ValueError(f"paths must be one file or two, got {len(paths)}; join the parts of a corpus with: cat")
    return Pairs(source, target)


def read_lines(
    path: Path,
    holds: str = "one sentence per line",
    on_latin1: Callable[[int], object] | None = None,
    *,
    reads_utf16: bool = False,
    fallback: str = "Latin-1",
) -> Iterator[str]:
    """The lines of a UTF-8 file, one at a time; `holds` describes the expected content in the error for an empty
    file. A line that is not UTF-8 is an error; with `on_latin1`, which gets its number, it is read as Latin-1, or as
    another `fallback`. With `reads_utf16`, a file that begins with the mark of UTF-16 is read as such.
    """
    check_is_file(path)
    number = unpacked = 0
    is_packed = path.suffix == ".gz"
    max_bytes = max_unpacked(path) if is_packed else 0
    with gzip.open(path, "rb") if is_packed else path.open("rb") as file:
        lines = iter(lambda: file.readline(MAX_LINE + 1), b"")
        if reads_utf16 and not is_packed and file.peek(2)[:2] in _UTF16_MARKS:
            lines = _utf16_lines(file)
        while True:
            try:
                line = next(lines)
            except StopIteration:
                break
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise ValueError(
                    f"{path}:{number + 1}: cannot be unpacked ({error}); pack it again with gzip"
                ) from error
            number += 1
            unpacked += len(line)
            if is_packed and unpacked > max_bytes:
                raise unpack_error(path, f":{number}:")
            check_length(line, path, number)
            try:
                yield decode_line(line, path, number)
            except ValueError:
                # Latin-1 has no zero bytes; UTF-16 and other kinds of files have
                is_binary = b"\0" in line or _is_binary(line) or (number == 1 and _signature(line) is not None)
                if on_latin1 is None or is_binary:
                    raise
                on_latin1(number)
                yield _decode_fallback(line.rstrip(b"\r\n"), path, number, fallback)
    if not number:
        raise ValueError(f"{path} is empty; it must hold {holds}")


def check_is_file(path: Path) -> None:
    """Raises for a folder, and for a path without a file."""
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name the file in it")
    if not path.exists():
        where = "" if path.is_absolute() else f", sought in {Path.cwd()}"
        raise ValueError(f"there is no file {path}{where}; name one that is there")


def read_records(
    path: Path,
    holds: str,
    on_latin1: Callable[[int], object] | None = None,
    *,
    reads_utf16: bool = False,
    fallback: str = "Latin-1",
) -> Iterator[str]:
    """The lines of `read_lines` without blank ones at the end, which are no records."""
    blank: list[str] = []
    is_empty = True
    for line in read_lines(path, holds, on_latin1, reads_utf16=reads_utf16, fallback=fallback):
        blank.append(line)
        if line.strip():
            is_empty = False
            yield from blank
            blank.clear()
    if is_empty:
        raise ValueError(f"{path} is empty; it must hold {holds}")


def _utf16_lines(file: BufferedReader | gzip.GzipFile) -> Iterator[bytes]:
    """The lines of a UTF-16 file in UTF-8."""
    text = TextIOWrapper(file, "utf-16", newline="\n")
    try:
        for line in iter(lambda: text.readline(MAX_LINE + 1), ""):
            yield line.encode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file.name}: begins as UTF-16 does, and is not ({error.reason}); save it as UTF-8"
        ) from error
    finally:
        # the caller, which opened the file, closes it
        text.detach()


def _decode_fallback(line: bytes, path: Path, number: int, encoding: str) -> str:
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number}: byte 0x{line[error.start]:02x} at place {error.start + 1} is neither UTF-8 nor "
            f"{encoding}; save the file as UTF-8"
        ) from error


def check_length(line: bytes, name: Path | str, number: int) -> None:
    """Raises if a line is too long to be one; the error names the file and the line."""
    if len(line) > MAX_LINE:
        raise ValueError(
            f"{name}:{number}: the line is longer than {MAX_LINE:,} bytes; break the text into lines, as in: fold -s"
        )


def decode_line(line: bytes, name: Path | str, number: int) -> str:
    """The text of a line; an error names the file and the line."""
    if number == 1:
        if (kind := _signature(line)) is not None:
            raise ValueError(f"{name} is {kind}, not text; name a text file in UTF-8")
        line = line.removeprefix(b"\xef\xbb\xbf")
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        way_out = "convert it, as in: iconv -f latin1 -t utf8"
        if line.startswith(_UTF16_MARKS):
            way_out = "it is UTF-16; convert it, as in: iconv -f utf16 -t utf8"
        elif b"\0" in line:
            way_out = f"its zero bytes are those of {_ZERO_BYTES}"
        elif _is_binary(line):
            way_out = "its control characters are those of no text; name a text file in UTF-8"
        raise ValueError(
            f"{name}:{number}: byte 0x{line[error.start]:02x} at place {error.start + 1} is not UTF-8; {way_out}"
        ) from error
    if "\0" in text:
        raise ValueError(f"{name}:{number}: a zero byte, at place {line.index(0) + 1}, is that of {_ZERO_BYTES}")
    return text


def _is_binary(line: bytes) -> bool:
    """Whether a line has more control characters than a text in any encoding: more than one of 50 bytes."""
    controls = sum(byte < 32 and byte not in b"\t\r\n\f\x1b" for byte in line[:4096])
    return 50 * controls > len(line[:4096])


def _signature(line: bytes) -> str | None:
    """The kind of file that begins with this line, where it is no text."""
    return next((kind for start, kind in _SIGNATURES.items() if line.startswith(start)), None)
