"""Dialogues from files, and groups of candidate responses that are built from them.  No torch here.

Can I help you ? __eou__ Yes , please . __eou__        one dialogue per line, as DailyDialog has it
Can I help you? <tab> Yes, please.                     the same with tabs
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.common.wording import shortened
from regard.data.text.pairs import read_records
from regard.data.tracking.files import has_turn_columns

_END = "__eou__"
_HOLDS = "one dialogue per line, its turns separated by tabs or by __eou__"

# draws per candidate, after which there are too few different responses
_DRAWS = 50

Dialogue = tuple[str, ...]


@dataclass(frozen=True)
class DialogueFile:
    """The dialogues of a file; those with words in one turn alone have no response and are left out."""

    dialogues: list[Dialogue]
    num_short: int


def read_dialogues(path: Path, max_length: int, count_words: Callable[[str, int], int]) -> DialogueFile:
    """The dialogues of a UTF-8 file, `.gz` unpacked; a turn of more than `max_length` words is an error.

    With __eou__ further columns behind a tab are labels and are ignored. An empty turn inside of a dialogue stays.
    """
    lines = list(read_records(path, _HOLDS))
    if lines and has_turn_columns(lines[0]):
        raise ValueError(
            f"{path}:1: these are the columns of turns with labels, which track reads, got {shortened(lines[0])}; give "
            f"{_HOLDS}"
        )
    has_ends = any(_END in line for line in lines)
    if not has_ends and not any("\t" in line for line in lines):
        raise ValueError(f"{path}:1: a line must have {_HOLDS}, got {shortened(lines[0])}; put tabs between turns")
    dialogues = []
    for number, line in enumerate(lines, 1):
        parts = line.split("\t")[0].split(_END) if has_ends else line.split("\t")
        turns = [part.strip() for part in parts]
        while turns and not turns[-1]:
            turns.pop()
        for turn in turns:
            if (count := count_words(turn, max_length)) > max_length:
                raise ValueError(
                    f"{path}:{number}: the turn {shortened(turn, 30)} has {count:,} words, more than "
                    f"max_length={max_length:,}; shorten it, or raise the limit"
                )
        if sum(map(bool, turns)) > 1:
            dialogues.append(tuple(turns))
    if not dialogues:
        raise ValueError(f"{path} has no dialogue of two turns or more; it must hold {_HOLDS}")
    return DialogueFile(dialogues, len(lines) - len(dialogues))


class Context(NamedTuple):
    """Turns of a dialogue, and the turn that follows."""

    turns: Dialogue
    response: str


class CandidateGroup(NamedTuple):
    """Turns of a dialogue and candidates for the next one, the right one first."""

    turns: Dialogue
    candidates: tuple[str, ...]


def contexts_of(dialogue: Dialogue, most: int) -> list[Context]:
    """Every turn from the second on, with at most `most` turns before it; an empty turn is no response."""
    return [
        Context(dialogue[max(0, n - most) : n], dialogue[n])
        for n in range(1, len(dialogue))
        if dialogue[n] and any(dialogue[max(0, n - most) : n])
    ]


def build_groups(dialogues: Sequence[Dialogue], most: int, candidates: int, seed: int) -> list[CandidateGroup]:
    """One group per dialogue, at a turn that the seed draws: the right response, and wrong ones of other dialogues.

    Candidates of a group differ from each other. A pure function of its arguments.
    """
    rng = np.random.default_rng(seed)
    pool = [(n, each.response) for n, dialogue in enumerate(dialogues) for each in contexts_of(dialogue, most)]
    num_different = len({response for _, response in pool})
    too_few = (
        f"candidates={candidates} needs as many different responses in other dialogues, and there are "
        f"{num_different} in {len(dialogues)}; give more dialogues, or fewer candidates"
    )
    if pool and candidates > num_different:
        raise ValueError(too_few)
    groups = []
    for n, dialogue in enumerate(dialogues):
        choices = contexts_of(dialogue, most)
        if not choices:
            continue
        context = choices[rng.integers(len(choices))]
        wrong: dict[str, None] = {}  # a set in order
        for owner, response in (pool[k] for k in rng.integers(len(pool), size=_DRAWS * candidates).tolist()):
            if len(wrong) == candidates - 1:
                break
            if owner != n and response != context.response and response not in wrong:
                wrong[response] = None
        if len(wrong) < candidates - 1:
            raise ValueError(too_few)
        groups.append(CandidateGroup(context.turns, (context.response, *wrong)))
    if not groups:
        raise ValueError(
            f"none of {len(dialogues)} dialogues has words in the turns={most} before a response; give more turns, or "
            "other dialogues"
        )
    return groups
