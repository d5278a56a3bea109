"""Pairs as numbers, flat: ids of all lines end to end, and where each line starts."""

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
from regard.data.text.tokenizer import Tokenizer

# A side with more tokens than this lives in files and is mapped into memory: 200 MB of ids.
MAPPED = 50_000_000
# lines encoded at once
_CHUNK = 8192
# Short sources have the oddest lengths: a target is measured by its source with so many tokens more.
SHORT = 10


@dataclass(frozen=True, eq=False)
class TokenizedLines:
    """Lines of one language; ids without BOS and EOS."""

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
class Dropped:
    """Pairs that are not learnt from, and why."""

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
    """Pairs as numbers: line n of the source belongs to line n of the target."""

    source: TokenizedLines
    target: TokenizedLines
    # which pairs of those that were read are not among these, in order: few beside what each of these stood as
    left_out: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def stretch(self) -> float:
        """The least r for which no target of n + 1 tokens is longer than r (m + 1 + SHORT), m those of its source."""
        most = 0.0
        for at in range(0, len(self), _CHUNK):
            source, target = (np.diff(side.starts[at : at + _CHUNK + 1]) for side in (self.source, self.target))
            most = max(most, float(((target + 1) / (source + 1 + SHORT)).max()))
        return most

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        source_tokens: Tokenizer,
        target_tokens: Tokenizer,
        max_length: int,
        folder: Path | None,
        *,
        mapped: int = MAPPED,
    ) -> tuple["Corpus", Dropped]:
        """The pairs of at most `max_length` tokens a side whose sides both hold more than white space.

        A side of more than `mapped` tokens is kept in `folder` and mapped from there, so that memory does not grow with
        the corpus; with no folder it stays in memory.
        """
        if max_length < 1:
            raise ValueError(f"max_length must be 1 or more, got {max_length}; try max_length=100")
        source, target = _Growing("source", folder, mapped), _Growing("target", folder, mapped)
        too_long = empty = 0
        left_out = array("i")
        try:
            for at in range(0, len(pairs), _CHUNK):
                lines = pairs.source[at : at + _CHUNK], pairs.target[at : at + _CHUNK]
                ids = source_tokens.encode(lines[0]), target_tokens.encode(lines[1])
                keep = []
                for n, (one, two, a, b) in enumerate(zip(*lines, *ids, strict=True)):
                    if not (a and b) or one.isspace() or two.isspace():
                        empty += 1
                    elif max(len(a), len(b)) > max_length:
                        too_long += 1
                    else:
                        keep.append(n)
                        continue
                    left_out.append(at + n)
                source.add([ids[0][n] for n in keep])
                target.add([ids[1][n] for n in keep])
            dropped = Dropped(too_long, empty, len(pairs), max_length)
            if too_long + empty == len(pairs):
                raise ValueError(
                    f"no pair is left to learn from: {dropped}; raise max_length={max_length} or look at the files"
                )
            # a full disk is told here at the latest, and then none has its own name yet
            source.settle()
            target.settle()
            return cls(source.side(), target.side(), np.array(left_out, np.int32)), dropped
        except OSError as error:
            raise error if folder is None else atomic_files.write_error(error, folder) from error
        finally:
            source.close()
            target.close()


def among_all(kept: NDArray[np.integer], left_out: NDArray[np.integer]) -> NDArray[np.int64]:
    """The numbers that those that were kept had before others, whose numbers are in order, were left out."""
    return kept + np.searchsorted(left_out - np.arange(len(left_out)), kept, side="right")


class _Growing:
    """A side while it grows: in memory first, in files from `mapped` tokens on."""

    def __init__(self, name: str, folder: Path | None, mapped: int) -> None:
        self.name, self.folder, self.mapped = name, folder, mapped
        self.ids, self.starts = _Flat(np.int32), _Flat(np.int64)
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

    def settle(self) -> None:
        self.ids.settle()
        self.starts.settle()

    def side(self) -> TokenizedLines:
        return TokenizedLines(self.ids.array(), self.starts.array())

    def close(self) -> None:
        self.ids.close()
        self.starts.close()


class _Flat:
    """Numbers end to end while there are ever more of them: in memory, after `move` in a file.

    One buffer: of a list of arrays that is freed, the C library keeps most.
    """

    def __init__(self, dtype: type[np.integer]) -> None:
        self.dtype = dtype
        self.file: IO[bytes] = BytesIO()
        self.path: Path | None = None

    def add(self, numbers: NDArray[np.integer]) -> None:
        self.file.write(numbers.data)

    def move(self, path: Path) -> None:
        held = self.file
        assert isinstance(held, BytesIO)
        self.file, self.path = _unfinished(path.parent, path.name), path
        self.file.write(held.getbuffer())

    def settle(self) -> None:
        """Forces a file to the disk."""
        if self.path is not None:
            self.file.flush()
            os.fsync(self.file.fileno())

    def array(self) -> NDArray[Any]:
        """All of them, to be read only; a file, settled before, takes its own name."""
        if self.path is not None:
            self.file.close()
            os.replace(self.file.name, self.path)
            return np.memmap(self.path, self.dtype, "r")
        assert isinstance(self.file, BytesIO)
        return np.frombuffer(self.file.getvalue(), self.dtype)

    def close(self) -> None:
        """Leaves no half-written file behind."""
        with contextlib.suppress(OSError):  # of a full disk, which was told
            self.file.close()
        if self.path is not None:
            Path(self.file.name).unlink(missing_ok=True)


def _unfinished(folder: Path, name: str) -> IO[bytes]:
    """A file under a name that a sweep of the folder knows, in case this process is killed."""
    atomic_files.make_folder(folder)
    return tempfile.NamedTemporaryFile(prefix=f".{name}.", suffix=atomic_files.UNFINISHED, dir=folder, delete=False)
