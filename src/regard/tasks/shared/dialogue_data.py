"""The dialogues of a run, for tasks that learn from whole dialogues: their splits, and the facts that a run records."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from regard.data.dialogues import Dialogue, read_dialogues
from regard.data.embedded import bookings
from regard.data.splitting import held_out, require_held_out, split_items
from regard.data.text.sentence_pairs import count_words
from regard.inference.evaluation_split import EvaluationSplit, SplitOptions
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.tasks.shared.text_options import DialogueConfig


class DialogueSplits(NamedTuple):
    """Dialogues to train on, to choose the best weights by, and to test on."""

    train: Sequence[Dialogue]
    valid: Sequence[Dialogue]
    test: Sequence[Dialogue]
    num_short: int = 0  # dialogues without a response in the files to train on and to validate, which are left out


def read(config: DialogueConfig, num_bookings: int = 1_500) -> DialogueSplits:
    """The dialogues to train on, to validate and to test on; of bookings `num_bookings` to train on."""
    if config.dataset != "files":
        parts = bookings.splits(config.seed, num_bookings)
        train, valid, test = ([each.turns for each in part] for part in (parts.train, parts.valid, parts.test))
        return DialogueSplits(train, valid, test)
    assert config.train is not None
    train, num_short = read_file(config, config.train)
    if config.valid is None:
        # a response is chosen among those of two dialogues or more
        held = held_out(contents(train), config.valid_share, config.seed, least=2)
        require_held_out(held, f"train={config.train}", "dialogues")
        train, valid = split_items(train, held)
    else:
        valid, more = read_file(config, config.valid)
        num_short += more
    return DialogueSplits(train, valid, valid if config.test is None else read_file(config, config.test)[0], num_short)


def read_file(config: DialogueConfig, path: Path) -> tuple[list[Dialogue], int]:
    """The dialogues of a file, and the number of those without a response, which are left out."""
    file = read_dialogues(path, config.max_length, count_words)
    return file.dialogues, file.num_short


@dataclass(frozen=True, kw_only=True)
class DialogueFingerprint(DataFingerprint):
    """Fingerprints of the dialogues of a run; a task adds the facts that it learned from them."""

    file: ClassVar[str] = "dialogues.json"
    unit: ClassVar[str] = "dialogues"

    @staticmethod
    def digest(dialogues: Sequence[Dialogue]) -> str:
        return sha256_of("\t".join(dialogue) + "\n" for dialogue in dialogues)


def contents(dialogues: Sequence[Dialogue]) -> list[str]:
    """The turns of every dialogue, by which copies are known."""
    return ["\t".join(dialogue) for dialogue in dialogues]


def evaluation_dialogues(
    config: DialogueConfig, folder: Path, options: SplitOptions
) -> EvaluationSplit[Sequence[Dialogue]]:
    """The dialogues that a run is scored on."""
    return EvaluationSplit[Sequence[Dialogue]].of(
        config,
        options,
        folder,
        "dialogues",
        read_files=lambda files: read_file(config, files[0])[0],
        read_part=lambda part: getattr(read(config), part),
        contents=contents,
    )
