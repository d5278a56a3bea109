"""The text of a run: its documents, the facts that the run records of them, and the segments of an epoch."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.data.embedded import manual
from regard.data.text.running_text import TextSplits, hold_out_end, read_documents
from regard.data.text.tokenizer import Tokenizer
from regard.tasks.language_model.options import LanguageModelConfig

_FILE = "text.json"


def read(config: LanguageModelConfig) -> TextSplits:
    """The documents to train on and to validate on."""
    documents = manual.documents() if config.dataset == "manual" else read_documents(config.train)
    if config.valid:
        return TextSplits(documents, read_documents(config.valid))
    return hold_out_end(documents, config.valid_share)


def train_tokenizer(config: LanguageModelConfig, documents: Sequence[str]) -> Tokenizer:
    """The vocabulary of the training text; bytes are byte pairs without merges."""
    if config.tokens == "characters":
        return Tokenizer.train("characters", documents, config.vocabulary_size)
    lines = (line for document in documents for line in document.splitlines(keepends=True))
    return Tokenizer.train("bpe", lines, config.vocabulary_size)


@dataclass(frozen=True)
class RunningTextFacts:
    """The number of characters of a run's text, and fingerprints."""

    train: int
    valid: int
    train_sha256: str
    valid_sha256: str

    @staticmethod
    def of(splits: TextSplits) -> "RunningTextFacts":
        train, valid = (sum(map(len, documents)) for documents in splits)
        return RunningTextFacts(train, valid, _digest(splits.train), _digest(splits.valid))

    @staticmethod
    def read(folder: Path) -> "RunningTextFacts":
        return dataclass_from_file(RunningTextFacts, folder / _FILE, "text")

    @staticmethod
    def is_saved(folder: Path) -> bool:
        return (folder / _FILE).exists()

    def write(self, folder: Path) -> None:
        atomic_files.write_atomically(folder / _FILE, [json.dumps(asdict(self)).encode(), b"\n"])

    def check_same(self, folder: Path) -> None:
        """Raises if the run of the folder began with other text."""
        before = RunningTextFacts.read(folder)
        for name in ("train", "valid"):
            if getattr(before, f"{name}_sha256") != getattr(self, f"{name}_sha256"):
                raise ValueError(
                    f"the {name} text of {folder} has changed: it had {getattr(before, name):,} characters, now "
                    f"{getattr(self, name):,}, and other content; put the files back as they were, or train in "
                    "another folder"
                )


def check_held_out(valid: Sequence[str], folder: Path) -> None:
    """Raises if the run of the folder held out other text than this, which it may have learned from."""
    if _digest(valid) != RunningTextFacts.read(folder).valid_sha256:
        raise ValueError(
            f"{folder} held out other text than this: its files have changed since, or another Python or version of "
            "regard began it; give text that it has not learned from, by --test"
        )


def _digest(documents: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{len(document)}\n{document}".encode())
    return digest.hexdigest()


class PlannedSegments(NamedTuple):
    """A batch of rows that begin at these tokens of the stream."""

    starts: NDArray[np.int64]  # "b"
    is_first: bool  # whether the rows before it belong to other text


def num_rows(length: int, rows: int, segment: int) -> int:
    """The rows of every batch: fewer than asked for if the text does not have a segment for each."""
    return min(rows, max((length - 1) // segment, 1))


def plan_segments(
    length: int, rows: int, segment: int, seed: int, epoch: int, *, contiguous: bool
) -> list[PlannedSegments]:
    """The batches of an epoch over a stream of `length` tokens; a pure function of its arguments.

    If `contiguous`, row r of a batch continues row r of the batch before it, so that a memory can be carried on;
    otherwise every batch has other windows. Where the first segment begins is drawn per epoch, so that windows differ
    from epoch to epoch.
    """
    rng = np.random.default_rng([seed, epoch])
    rows = num_rows(length, rows, segment)
    steps = (length - 1) // (rows * segment)
    spare = length - 1 - rows * steps * segment
    first = int(rng.integers(min(spare, segment - 1) + 1))
    if not contiguous:
        count = (length - 1 - first) // segment
        windows = first + segment * rng.permutation(count)
        return [PlannedSegments(windows[n : n + rows], True) for n in range(0, count - rows + 1, rows)]
    row_starts = first + steps * segment * np.arange(rows)
    return [PlannedSegments(row_starts + n * segment, n == 0) for n in range(steps)]


@dataclass(frozen=True, eq=False)
class SegmentBatch:
    """Tokens, each of which is to be predicted from those before it."""

    tokens: Tensor  # "b t+1"
    is_first: bool

    def to(self, device: torch.device) -> "SegmentBatch":
        return SegmentBatch(self.tokens.to(device), self.is_first)


def load_segments(
    stream: NDArray[np.int32], planned: PlannedSegments, segment: int, rank: int, world: int
) -> SegmentBatch | None:
    starts = planned.starts[rank::world]
    if not len(starts):
        return None
    tokens = np.stack([stream[start : start + segment + 1] for start in starts])
    return SegmentBatch(torch.from_numpy(tokens).long(), planned.is_first)
