"""Corpus: tokenized pairs as flat arrays, the ids of all lines in one array and the start of each line in another."""

import contextlib
import os
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.common import atomic_files
from regard.data.text.pairs import Pairs
from regard.data.text.text_tokenizer import TextTokenizer

# Lines of more tokens than this are stored in files that are mapped into memory: 200 MB of ids.
MAPPED = 50_000_000
# lines encoded at a time
_CHUNK = 8192
# Added to source lengths before taking the target/source ratio, so that very short sources do not dominate it.
LENGTH_OFFSET = 10


@dataclass(frozen=True, eq=False)
class TokenizedLines:
    """Tokenized lines of one language; ids without BOS and EOS."""

    ids: NDArray[np.int32]  # "tokens"
    starts: NDArray[np.int64]  # "n+1"

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, n: int) -> NDArray[np.int32]:
        n = range(len(self))[n]
        return self.ids[self.starts[n] : self.starts[n + 1]]

    @property
    def lengths(self) -> NDArray[np.int32]:  # "n"
        return np.subtract(self.starts[1:], self.starts[:-1], dtype=np.int32, casting="same_kind")


@dataclass(frozen=True)
class DroppedPairs:
    """The number of dropped pairs by reason, of all pairs that were read."""

    too_long: int
    empty: int
    total: int
    max_length: int

    def __str__(self) -> str:
        if not self.too_long + self.empty:
            return f"kept all {self.total:,} pairs"
        return (
            f"dropped {self.too_long + self.empty:,} of {self.total:,} pairs: {self.too_long:,} with a side of "
            f"more than {self.max_length:,} tokens, {self.empty:,} with an empty side"
        )


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokenized pairs: line n of the source belongs to line n of the target."""

    source: TokenizedLines
    target: TokenizedLines
    # indices, in order, of the pairs that were read but dropped
    left_out: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def max_length_ratio(self) -> float:
        """The least r for which no target of n + 1 tokens is longer than r (m + 1 + LENGTH_OFFSET), m the tokens of its
        source.
        """
        ratio = 0.0
        for start in range(0, len(self), _CHUNK):
            source, target = (np.diff(lines.starts[start : start + _CHUNK + 1]) for lines in (self.source, self.target))
            ratio = max(ratio, float(((target + 1) / (source + 1 + LENGTH_OFFSET)).max()))
        return ratio

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        source_tokens: TextTokenizer,
        target_tokens: TextTokenizer,
        max_length: int,
        folder: Path | None,
        *,
        mapped: int = MAPPED,
    ) -> tuple["Corpus", DroppedPairs]:
        """The pairs of at most `max_length` tokens per side whose sides both contain more than white space.

        A side of more than `mapped` tokens is stored in `folder` and mapped from there, so that memory does not grow
        with the corpus; without a folder it stays in memory.
        """
        if max_length < 1:
            raise ValueError(f"max_length must be 1 or more, got {max_length}; try max_length=100")
        source, target = _LinesWriter("source", folder, mapped), _LinesWriter("target", folder, mapped)
        too_long = empty = 0
        left_out = array("i")
        try:
            for start in range(0, len(pairs), _CHUNK):
                lines = pairs.source[start : start + _CHUNK], pairs.target[start : start + _CHUNK]
                ids = source_tokens.encode(lines[0]), target_tokens.encode(lines[1])
                kept_lines = []
                for n, (source_line, target_line, a, b) in enumerate(zip(*lines, *ids, strict=True)):
                    if not (a and b) or source_line.isspace() or target_line.isspace():
                        empty += 1
                    elif max(len(a), len(b)) > max_length:
                        too_long += 1
                    else:
                        kept_lines.append(n)
                        continue
                    left_out.append(start + n)
                source.add([ids[0][n] for n in kept_lines])
                target.add([ids[1][n] for n in kept_lines])
            dropped = DroppedPairs(too_long, empty, len(pairs), max_length)
            if too_long + empty == len(pairs):
                raise ValueError(
                    f"no pair is left to learn from: {dropped}; raise max_length={max_length} or look at the files"
                )
            # an error such as a full disk is raised here at the latest, before any file has its final name
            source.sync()
            target.sync()
            return cls(source.lines(), target.lines(), np.array(left_out, np.int32)), dropped
        except OSError as error:
            raise error if folder is None else atomic_files.write_error(error, folder) from error
        finally:
            source.close()
            target.close()


def among_all(indices: NDArray[np.integer], left_out: NDArray[np.integer]) -> NDArray[np.int64]:
    """The indices before dropping, from the indices after it; `left_out` are the dropped ones, in order."""
    return indices + np.searchsorted(left_out - np.arange(len(left_out)), indices, side="right")


class _LinesWriter:
    """Tokenized lines that are being written: in memory first, in files from `mapped` tokens on."""

    def __init__(self, name: str, folder: Path | None, mapped: int) -> None:
        self.name, self.folder, self.mapped = name, folder, mapped
        self.ids, self.starts = _ArrayWriter(np.int32), _ArrayWriter(np.int64)
        self.starts.add(np.zeros(1, np.int64))
        self.tokens = 0

    def add(self, lines: Sequence[Sequence[int]]) -> None:
        starts = self.tokens + np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)))
        ids = np.fromiter(chain.from_iterable(lines), np.int32)
        self.tokens += len(ids)
        self.ids.add(ids)
        self.starts.add(starts)
        if self.folder is not None and self.tokens > self.mapped and self.ids.path is None:
            self.ids.move(self.folder / f"{self.name}.ids")
            self.starts.move(self.folder / f"{self.name}.starts")

    def sync(self) -> None:
        self.ids.sync()
        self.starts.sync()

    def lines(self) -> TokenizedLines:
        return TokenizedLines(self.ids.array(), self.starts.array())

    def close(self) -> None:
        self.ids.close()
        self.starts.close()


class _ArrayWriter:
    """A growing array of numbers: in memory, after `move` in a file.

    One buffer: the C library would not return most of the memory of a list of arrays.
    """

    def __init__(self, dtype: type[np.integer]) -> None:
        self.dtype = dtype
        self.file: IO[bytes] = BytesIO()
        self.path: Path | None = None

    def add(self, numbers: NDArray[np.integer]) -> None:
        self.file.write(numbers.data)

    def move(self, path: Path) -> None:
        buffer = self.file
        assert isinstance(buffer, BytesIO)
        self.file, self.path = _unfinished(path.parent, path.name), path
        self.file.write(buffer.getbuffer())

    def sync(self) -> None:
        """Forces a file to the disk."""
        if self.path is not None:
            self.file.flush()
            os.fsync(self.file.fileno())

    def array(self) -> NDArray[Any]:
        """The whole array, read-only; a file, which was synced before, gets its final name."""
        if self.path is not None:
            self.file.close()
            os.replace(self.file.name, self.path)
            return np.memmap(self.path, self.dtype, "r")
        assert isinstance(self.file, BytesIO)
        return np.frombuffer(self.file.getvalue(), self.dtype)

    def close(self) -> None:
        """Removes an unfinished file."""
        with contextlib.suppress(OSError):  # a full disk, which was already reported
            self.file.close()
        if self.path is not None:
            Path(self.file.name).unlink(missing_ok=True)


def _unfinished(folder: Path, name: str) -> IO[bytes]:
    """A file with a name that `remove_unfinished` recognises, in case this process is killed."""
    atomic_files.make_folder(folder)
    return tempfile.NamedTemporaryFile(prefix=f".{name}.", suffix=atomic_files.UNFINISHED, dir=folder, delete=False)
