"""The text of a run, for tasks that learn running text: its documents, its vocabulary, and the facts that a run records
of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.splitting import Parts
from regard.data.text.running_text import TextSplits, hold_out_end, read_documents, token_stream
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation_split import EvaluationSplit, SplitOptions, record_splits
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.tasks.shared.text_generation import initial_tokenizer, read_tokenizer, write_tokenizer
from regard.tasks.shared.text_options import TokenizedTextConfig
from regard.training.protocol import Batch, Model, TrainingProblem

TOKENS = "tokens.json"
# characters of a line, and of several short lines, that are not likely to recur by chance
_LONG_LINE, _LONG_PASSAGE = 32, 64


def read(config: TokenizedTextConfig) -> TextSplits:
    """The documents to train on and to validate on."""
    if config.dataset != "files":
        return config.embedded_splits()
    documents = read_documents(config.train)
    if config.valid:
        return TextSplits(documents, read_documents(config.valid))
    return hold_out_end(documents, config.valid_share)


def train_tokenizer(config: TokenizedTextConfig, documents: Sequence[str]) -> Tokenizer:
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
        return replace(RunningTextFacts().for_data(splits), train=train, valid=valid)

    @staticmethod
    def digest(documents: Sequence[str]) -> str:
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


class RunText(NamedTuple):
    """The text of a run, ready to train on."""

    tokenizer: Tokenizer
    stream: NDArray[np.int32]  # "n", the tokens to train on
    valid: list[str]
    warnings: list[str]  # lines that the files of the run share


def prepare_text(
    config: TokenizedTextConfig,
    folder: Path,
    new: bool,
    *,
    unpredicted: int,
    shortest: int,
    write: Callable[[NDArray[np.int32], Tokenizer], None] = lambda stream, tokenizer: None,
) -> RunText:
    """The text of a run, and its vocabulary, which a new run learns and saves; `write` saves further facts of it.

    `unpredicted` tokens of the text are the target of no row, and a segment has at least `shortest` tokens.
    """
    splits = read(config)
    facts = RunningTextFacts.of(splits)
    # a run that was killed while it read its data has nothing to load yet
    new = new or not RunningTextFacts.is_saved(folder)
    if new:
        tokenizer = initial_tokenizer(folder, TOKENS, lambda: train_tokenizer(config, splits.train))
    else:
        facts.check_same(folder)
        tokenizer = read_tokenizer(folder / TOKENS)
    stream = token_stream(tokenizer, splits.train)
    length = len(stream) - unpredicted
    if length < config.segment:
        raise ValueError(
            f"segment={config.segment} tokens are more than the {length} of the training text; "
            f"give more text, or segment={max(length // 2, shortest)}"
        )
    if new:
        write_tokenizer(tokenizer, folder / TOKENS)
        write(stream, tokenizer)
        facts.write(folder)
    test = read_documents(config.test) if config.test else splits.valid
    warnings = record_splits(config, folder, Parts(*splits, test), "lines", contents, new)
    return RunText(tokenizer, stream, splits.valid, warnings)


class RunningTextProblem(TrainingProblem[Model, Batch]):
    """A problem whose planned batches name the tokens of the training text that their rows begin at."""

    def __init__(self, config: Any, text: RunText) -> None:
        self.config, (self.tokenizer, self.stream, self.valid, self.shared) = config, text

    def token_counts(self, trained: int, validated: int) -> str:
        vocabulary = len(self.tokenizer)
        return f"{trained:,} tokens to train on, {validated:,} to validate, {vocabulary:,} different ones"

    def locate(self, planned: Sequence[Any]) -> str:
        """The first token of these batches, and the text there."""
        start = int(planned[0].starts[0])
        words = self.tokenizer.decode_text(self.stream[start : start + 20].tolist())
        return f"token {start:,} of {self.config.dataset_label}, {words!r}"


def _check_end(config: TokenizedTextConfig, documents: Sequence[str], folder: Path) -> None:
    """Raises unless the end of the text that is held out now is that of the run; its lines may well recur before it."""
    if RunningTextFacts.digest(documents) == RunningTextFacts.read(folder).valid_sha256:
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
    config: TokenizedTextConfig, folder: Path, options: SplitOptions
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
