"""The text of a run, for tasks that learn running text: its documents, its vocabulary, and the facts that a run records
of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from regard.data.text.running_text import TextSplits, hold_out_end, read_documents
from regard.data.text.tokenizer import Tokenizer
from regard.tasks._data_fingerprint import DataFingerprint, sha256_of


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
    def embedded_splits(self) -> TextSplits: ...


class EvaluationOptions(Protocol):
    """The options of `regard evaluate` that name a text."""

    @property
    def split(self) -> str: ...
    @property
    def test(self) -> tuple[Path, ...]: ...


def read(config: RunningTextOptions) -> TextSplits:
    """The documents to train on and to validate on."""
    if config.dataset != "files":
        return config.embedded_splits()
    documents = read_documents(config.train)
    if config.valid:
        return TextSplits(documents, read_documents(config.valid))
    return hold_out_end(documents, config.valid_share)


def train_tokenizer(config: RunningTextOptions, documents: Sequence[str]) -> Tokenizer:
    """The vocabulary of the training text; bytes are byte pairs without merges."""
    if config.tokens == "characters":
        return Tokenizer.train("characters", documents, config.vocabulary_size)
    lines = (line for document in documents for line in document.splitlines(keepends=True))
    return Tokenizer.train("bpe", lines, config.vocabulary_size)


@dataclass(frozen=True, kw_only=True)
class RunningTextFacts(DataFingerprint):
    """The number of characters of a run's text, and fingerprints."""

    file: ClassVar[str] = "text.json"
    unit: ClassVar[str] = "characters of text"

    @staticmethod
    def of(splits: TextSplits) -> "RunningTextFacts":
        train, valid = (sum(map(len, documents)) for documents in splits)
        return RunningTextFacts(
            train=train, valid=valid, train_sha256=_digest(splits.train), valid_sha256=_digest(splits.valid)
        )


def _digest(documents: Sequence[str]) -> str:
    return sha256_of(f"{len(document)}\n{document}" for document in documents)


def evaluation_documents(config: RunningTextOptions, folder: Path, options: EvaluationOptions) -> tuple[list[str], str]:
    """The documents that a run is scored on, and their name."""
    if options.test:
        return read_documents(options.test), " ".join(map(str, options.test))
    if config.test and options.split == "test":
        return read_documents(config.test), f"the test text of {folder}"
    documents = read_documents(config.valid) if config.valid else read(config).valid
    if not config.valid:
        RunningTextFacts.read(folder).check_held_out(_digest(documents), folder)
    none = ", which has no test text" if options.split == "test" else ""
    return documents, f"the validation text of {folder}{none}"
