"""The text of a run, for tasks that learn running text: its documents, its vocabulary, and the facts that a run records
of it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.data.embedded import manual
from regard.data.text.running_text import TextSplits, hold_out_end, read_documents
from regard.data.text.tokenizer import Tokenizer

_FILE = "text.json"


class RunningTextOptions(Protocol):
    """The options of a task that name its text, and its tokens."""

    @property
    def dataset(self) -> str: ...
    @property
    def train(self) -> tuple[Path, ...]: ...
    @property
    def valid(self) -> tuple[Path, ...]: ...
    @property
    def test(self) -> tuple[Path, ...]: ...
    @property
    def valid_share(self) -> float: ...
    @property
    def tokens(self) -> str: ...
    @property
    def vocabulary_size(self) -> int: ...


class EvaluationOptions(Protocol):
    """The options of `regard evaluate` that name a text."""

    @property
    def split(self) -> str: ...
    @property
    def test(self) -> tuple[Path, ...]: ...


def read(config: RunningTextOptions) -> TextSplits:
    """The documents to train on and to validate on."""
    documents = manual.documents() if config.dataset == "manual" else read_documents(config.train)
    if config.valid:
        return TextSplits(documents, read_documents(config.valid))
    return hold_out_end(documents, config.valid_share)


def train_tokenizer(config: RunningTextOptions, documents: Sequence[str]) -> Tokenizer:
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


def _check_held_out(valid: Sequence[str], folder: Path) -> None:
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


def evaluation_documents(config: RunningTextOptions, folder: Path, options: EvaluationOptions) -> tuple[list[str], str]:
    """The documents that a run is scored on, and their name."""
    if options.test:
        return read_documents(options.test), " ".join(map(str, options.test))
    if config.test and options.split == "test":
        return read_documents(config.test), f"the test text of {folder}"
    documents = read_documents(config.valid) if config.valid else read(config).valid
    if not config.valid:
        _check_held_out(documents, folder)
    none = ", which has no test text" if options.split == "test" else ""
    return documents, f"the validation text of {folder}{none}"
