"""The candidates of an evaluation, the facts that a run records of its dialogues, and the tf-idf baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.common.word_splitting import split_words
from regard.common.wording import shortened
from regard.data.dialogues import CandidateGroup, Dialogue, build_groups
from regard.data.text.sentence_pairs import count_words
from regard.data.text.tf_idf import TfIdf
from regard.data.text.words import repeated_words
from regard.tasks.select_response.options import SelectResponse
from regard.tasks.shared.dialogue_data import DialogueFingerprint, DialogueSplits


def groups_of(config: SelectResponse, dialogues: Sequence[Dialogue]) -> list[CandidateGroup]:
    """The candidates of an evaluation, the same in every run of a seed."""
    return build_groups(dialogues, config.turns, config.candidates, config.seed)


@dataclass(frozen=True, kw_only=True)
class DialogueFacts(DialogueFingerprint):
    """The words of a run, and fingerprints of its dialogues."""

    words: list[str]

    @staticmethod
    def of(splits: DialogueSplits, vocabulary: int) -> "DialogueFacts":
        turns = [split_words(turn)[0] for dialogue in splits.train for turn in dialogue]
        return DialogueFacts(words=repeated_words(turns, vocabulary)).for_data(splits)


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
