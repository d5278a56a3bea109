"""The dialogues of a run: their splits, the facts that the run records of them, and the tf-idf baseline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.common.wording import shortened
from regard.data.dialogues import CandidateGroup, Dialogue, build_groups, read_dialogues
from regard.data.embedded import bookings
from regard.data.splitting import held_out_items
from regard.data.text.sentence_pairs import count_words
from regard.data.text.tf_idf import TfIdf
from regard.data.text.words import repeated_words, split_words
from regard.tasks._data_fingerprint import DataFingerprint, sha256_of
from regard.tasks.select_response.options import SelectResponse


class DialogueSplits(NamedTuple):
    """Dialogues to train on, to choose the best weights by, and to test on."""

    train: Sequence[Dialogue]
    valid: Sequence[Dialogue]
    test: Sequence[Dialogue]
    num_short: int = 0  # dialogues without a response in the files to train on and to validate, which are left out


def read(config: SelectResponse) -> DialogueSplits:
    """The dialogues to train on, to validate and to test on."""
    if config.dataset != "files":
        parts = bookings.splits(config.seed)
        train, valid, test = ([each.turns for each in part] for part in (parts.train, parts.valid, parts.test))
        return DialogueSplits(train, valid, test)
    assert config.train is not None
    train, num_short = read_file(config, config.train)
    if config.valid is None:
        train, valid = _hold_out(train, config)
    else:
        valid, more = read_file(config, config.valid)
        num_short += more
    return DialogueSplits(train, valid, valid if config.test is None else read_file(config, config.test)[0], num_short)


def read_file(config: SelectResponse, path: Path) -> tuple[list[Dialogue], int]:
    """The dialogues of a file, and the number of those without a response, which are left out."""
    found = read_dialogues(path, config.max_length, count_words)
    return found.dialogues, found.num_short


def _hold_out(dialogues: Sequence[Dialogue], config: SelectResponse) -> tuple[list[Dialogue], list[Dialogue]]:
    """Two parts without a common dialogue."""
    distinct = sorted({*dialogues})
    if len(distinct) < 4:
        raise ValueError(
            f"train={config.train} has {len(distinct)} different dialogues, too few to hold some out; give more, or "
            "--valid as well"
        )
    held = held_out_items(distinct, config.valid_share, config.seed, least=2)
    return [each for each in dialogues if each not in held], [each for each in dialogues if each in held]


def groups_of(config: SelectResponse, dialogues: Sequence[Dialogue]) -> list[CandidateGroup]:
    """The candidates of an evaluation, the same in every run of a seed."""
    return build_groups(dialogues, config.turns, config.candidates, config.seed)


@dataclass(frozen=True, kw_only=True)
class DialogueFacts(DataFingerprint):
    """The words of a run, and fingerprints of its dialogues."""

    file: ClassVar[str] = "dialogues.json"
    unit: ClassVar[str] = "dialogues"

    words: list[str]

    def for_data(self, splits: DialogueSplits) -> "DialogueFacts":
        """The same words for other dialogues."""
        train, valid = splits.train, splits.valid
        hashes = digest(train), digest(valid)
        return replace(self, train=len(train), valid=len(valid), train_sha256=hashes[0], valid_sha256=hashes[1])

    @staticmethod
    def of(splits: DialogueSplits, vocabulary: int) -> "DialogueFacts":
        turns = [split_words(turn)[0] for dialogue in splits.train for turn in dialogue]
        empty = DialogueFacts(words=[], train=0, valid=0, train_sha256="", valid_sha256="").for_data(splits)
        return replace(empty, words=repeated_words(turns, vocabulary))


def digest(dialogues: Sequence[Dialogue]) -> str:
    """The fingerprint of dialogues."""
    return sha256_of("\t".join(dialogue) + "\n" for dialogue in dialogues)


def tf_idf_scores(groups: Sequence[CandidateGroup]) -> NDArray[np.float64]:  # -> "n c"
    """The cosine of all turns of a context with every candidate: the baseline of every evaluation."""
    distinct = {text: n for n, text in enumerate(dict.fromkeys(text for group in groups for text in group.candidates))}
    index = TfIdf(list(distinct))
    # group by group: contexts times candidates of all groups would not fit into memory
    return np.stack(
        [index.similarity(" ".join(group.turns))[[distinct[text] for text in group.candidates]] for group in groups]
    )


def parse_group(text: str, max_length: int, most: int | None = None) -> CandidateGroup:
    """The turns on the first line, separated by tabs, and one candidate per further line, at most this many."""
    first, *candidates = text.strip("\n").split("\n")
    turns = tuple(turn.strip() for turn in first.split("\t"))
    candidates = [candidate.strip() for candidate in candidates]
    if not candidates or not all(candidates) or not any(turns):
        raise ValueError(
            "an input must be the turns of a dialogue on one line, separated by tabs, and a candidate on every further "
            f"line, got {shortened(text)}; give one turn and one candidate at least"
        )
    if most is not None and len(candidates) > most:
        raise ValueError(
            f"the input {shortened(text, 30)} has {len(candidates):,} candidates, more than {most:,}; send the others "
            "in further inputs: the score of a candidate does not depend on the others"
        )
    for part in (*turns, *candidates):
        if (count := count_words(part, max_length)) > max_length:
            raise ValueError(
                f"the text {shortened(part, 30)} has {count:,} words, more than max_length={max_length:,} of this run; "
                "shorten it"
            )
    return CandidateGroup(turns, tuple(candidates))
