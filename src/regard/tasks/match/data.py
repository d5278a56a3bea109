"""The pairs of a run: their splits, the facts that the run records of them, and batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from regard.common.word_splitting import split_words
from regard.common.wording import shortened
from regard.data.embedded import quantifiers
from regard.data.splitting import held_out, require_held_out
from regard.data.spreadsheets.pair_columns import Columns
from regard.data.text.sentence_pairs import (
    LabelledPairs,
    PairSplits,
    count_words,
    read_labelled_pairs,
    with_pair_classes,
)
from regard.data.text.words import repeated_characters, repeated_words
from regard.tasks.match.options import Match
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.training.protocol import LabelledBatch

_PARTS = ("first", "second")


def read(config: Match, classes: Sequence[str] | None = None) -> PairSplits:
    """The pairs to train on, to validate and to test on.

    With `classes`, such as those of a trained model, labels of the training pairs must be among them. Files to validate
    and to test on may have others, which count as missed.
    """
    if config.dataset != "files":
        splits = quantifiers.splits(config.seed)
        if classes is None:
            return splits
        parts = (with_pair_classes(part, classes, config.dataset) for part in (splits.train, splits.valid, splits.test))
        return PairSplits(*parts)
    assert config.train is not None
    train = read_file(config, config.train, classes, refuses_unseen=True)
    if len(train.classes) < 2:
        raise ValueError(
            f"train={config.train} has one class, {train.classes[0]!r}, so there is nothing to learn; "
            "give pairs of another class as well"
        )
    if config.valid is None:
        # pairs with the same first text stay together: several share it, such as a picture's description in SNLI
        held = held_out(train.first, config.valid_share, config.seed, labels=train.labels)
        require_held_out(held, f"train={config.train}", "pairs")
        train, valid = train[np.flatnonzero(~held)], train[np.flatnonzero(held)]
    else:
        valid = read_file(config, config.valid, train.classes)
    test = valid if config.test is None else read_file(config, config.test, train.classes)
    return PairSplits(train, valid, test)


def read_file(
    config: Match, path: Path, classes: Sequence[str] | None = None, *, refuses_unseen: bool = False
) -> LabelledPairs:
    """The pairs of one file in the format of the run."""
    columns = None if config.columns is None else Columns.parse(config.columns)
    return read_labelled_pairs(path, classes, columns, config.max_length, refuses_unseen=refuses_unseen)


@dataclass(frozen=True, kw_only=True)
class PairFacts(DataFingerprint):
    """The classes, words and characters of a run, and fingerprints of its pairs."""

    file: ClassVar[str] = "pairs.json"
    unit: ClassVar[str] = "pairs"

    classes: list[str]
    words: list[str]
    characters: list[str]

    @staticmethod
    def digest(data: LabelledPairs) -> str:
        return sha256_of(f"{line}\n" for line in data.lines)

    @staticmethod
    def of(splits: PairSplits, vocabulary: int) -> "PairFacts":
        train = splits.train
        sentences = [split_words(text)[0] for text in (*train.first, *train.second)]
        return PairFacts(
            classes=list(train.classes),
            words=repeated_words(sentences, vocabulary),
            characters=repeated_characters(sentences),
        ).for_data(splits)


def contents(data: LabelledPairs) -> list[str]:
    """The content of every pair, by which copies are known; its class may differ."""
    return [f"{first}\t{second}" for first, second in zip(data.first, data.second, strict=True)]


# the texts that `parse_pair` takes: not blank, with one tab between them, or on two lines without a tab
PAIR_PATTERN = r"^[^\t]*\S[^\t]*\t[^\t]*\S[^\t]*$|^[^\S\t]*\S[^\t\n]*\n[^\t\n]*\S[^\S\t]*$"


def parse_pair(text: str, max_length: int) -> tuple[str, str]:
    """Both texts of "first <tab> second", or of two lines; raises ValueError if there are not two, or one is too long.

    With a tab, line breaks are part of the texts.
    """
    parts = text.split("\t") if "\t" in text else text.strip().split("\n")
    if len(parts) != len(_PARTS):
        raise ValueError(
            f"a pair must be two texts with a tab between them, or on two lines, got {shortened(text)}; "
            "type the first text, a tab and the second text, or behind a command one text after the other"
        )
    for name, part in zip(_PARTS, parts, strict=True):
        if not part.strip():
            raise ValueError(f"the {name} text of {shortened(text)} is empty; give both texts")
        if (count := count_words(part, max_length)) > max_length:
            raise ValueError(
                f"the {name} text, {shortened(part, 30)}, has {count:,} words, more than max_length={max_length:,} of "
                "this run; shorten it"
            )
    return parts[0].strip(), parts[1].strip()


@dataclass(frozen=True, eq=False)
class MatchBatch(LabelledBatch):
    """Pairs as a model reads them, and their classes."""

    inputs: Any  # inputs of the reader
    labels: Tensor  # "b"
