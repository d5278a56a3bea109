"""Lines: a sequence of strings whose memory does not grow with the text; long texts are stored in a temporary file."""

import os
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import IO, overload

# Text of more bytes than this goes to an unnamed file in the folder for temporary files (TMPDIR).
HELD = 100_000_000
# lines read at a time during iteration
_CHUNK = 8192


class Lines(Sequence[str]):
    """Lines that are added once and read often: in memory up to `held` bytes, in an unnamed file beyond.

    Read slices: each is one read.
    """

    def __init__(self, held: int = HELD) -> None:
        self._held = held
        self._bytes = 0
        self._memory: list[str] = []
        self._file: IO[bytes] | None = None
        self._starts = array("q", [0])  # offsets of the lines in the file, then its end
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        if self._file is not None:
            self._write(line.encode())
            return
        self._memory.append(line)
        self._bytes += len(line.encode())
        if self._bytes > self._held:
            self._file = tempfile.TemporaryFile(prefix="regard-")  # noqa: SIM115  closed with the last who reads it
            weakref.finalize(self, self._file.close)
            for stored in self._memory:
                self._write(stored.encode())
            self._memory.clear()

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        with self._write_errors():
            self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self._memory) if self._file is None else len(self._starts) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if self._file is None:
            return self._memory[index]
        selected = range(len(self))[index]
        if isinstance(selected, int):
            return self._read(selected, selected + 1)[0]
        if selected.step != 1:
            return [self[n] for n in selected]
        return self._read(selected.start, max(selected.start, selected.stop))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK]

    def _read(self, first: int, end: int) -> list[str]:
        assert self._file is not None
        starts = self._starts[first : end + 1]
        # writing and reading share one position in the file
        with self._lock, self._write_errors():
            self._file.seek(starts[0])
            text = self._file.read(starts[-1] - starts[0])
            self._file.seek(0, os.SEEK_END)
        return [text[a - starts[0] : b - starts[0]].decode() for a, b in pairwise(starts)]

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"text of more than {self._held:,} bytes goes to {tempfile.gettempdir()}, which does not take it "
                f"({error.strerror}); make room, or set TMPDIR to a folder that has it",
            ) from error
