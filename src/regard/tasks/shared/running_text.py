"""The text of a run, for tasks that learn running text: its documents, its vocabulary, and the facts that a run records
of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from regard.data.text.running_text import TextSplits, hold_out_end, read_documents
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation_split import EvaluationSplit, HeldOutPart, Parts, record_splits
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of

# characters of a line, and of several short lines, that are not likely to recur by chance
_LONG_LINE, _LONG_PASSAGE = 32, 64


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
    def split(self) -> HeldOutPart: ...
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


def contents(documents: Sequence[str]) -> Iterator[str]:
    """The lines of documents, by which copies are known: a short one, which recurs in any text, with the next ones."""
    for document in documents:
        lines = [line for line in document.splitlines() if line.strip()]
        for n, line in enumerate(lines):
            if len(line) >= _LONG_LINE:
                yield line
                continue
            end, length = n, 0
            while end < len(lines) and length < _LONG_PASSAGE:
                length += len(lines[end])
                end += 1
            if length >= _LONG_PASSAGE:
                yield "\n".join(lines[n:end])


def record_documents(config: RunningTextOptions, folder: Path, splits: TextSplits, new: bool) -> list[str]:
    """Keeps hashes of the lines of a run on files, and returns warnings about lines that its files share."""
    test = read_documents(config.test) if config.test else splits.valid
    return record_splits(config, folder, Parts(*splits, test), "lines", contents, new)


def _check_end(config: RunningTextOptions, documents: Sequence[str], folder: Path) -> None:
    """Raises unless the end of the text that is held out now is that of the run; its lines may well recur before it."""
    if _digest(documents) == RunningTextFacts.read(folder).valid_sha256:
        return
    if config.dataset == "files":
        raise ValueError(
            f"{' '.join(map(str, config.train))} has changed since {folder} was trained, and the end that is held out "
            "now may have been trained on; put the files back as they were, or give others by --test"
        )
    raise ValueError(
        f"the text of {config.dataset} is another one than {folder} was trained on, as another version of Python has "
        "another manual; give a text that it has not learned from by --test"
    )


def evaluation_documents(
    config: RunningTextOptions, folder: Path, options: EvaluationOptions
) -> EvaluationSplit[list[str]]:
    """The documents that a run is scored on."""
    return EvaluationSplit[list[str]].of(
        config,
        options,
        folder,
        "lines",
        read_files=read_documents,
        read_part=lambda part: read(config).valid,
        contents=contents,
        check=lambda documents: _check_end(config, documents, folder),
        has_embedded_test=False,
    )
