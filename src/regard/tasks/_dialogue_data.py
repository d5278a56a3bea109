"""The dialogues of a run, for tasks that learn from whole dialogues: their splits, and the facts that a run records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

from regard.common.wording import plural
from regard.data.dialogues import Dialogue, read_dialogues
from regard.data.embedded import bookings
from regard.data.splitting import held_out_items
from regard.data.text.sentence_pairs import count_words
from regard.tasks._data_fingerprint import DataFingerprint, sha256_of


class DialogueOptions(Protocol):
    """The options of a task that name its dialogues."""

    @property
    def dataset(self) -> str: ...
    @property
    def train(self) -> Path | None: ...
    @property
    def valid(self) -> Path | None: ...
    @property
    def test(self) -> Path | None: ...
    @property
    def valid_share(self) -> float: ...
    @property
    def max_length(self) -> int: ...
    @property
    def seed(self) -> int: ...


class DialogueEvaluation(Protocol):
    """The options of `regard evaluate` that name dialogues."""

    @property
    def split(self) -> str: ...
    @property
    def test(self) -> Path | None: ...


class DialogueSplits(NamedTuple):
    """Dialogues to train on, to choose the best weights by, and to test on."""

    train: Sequence[Dialogue]
    valid: Sequence[Dialogue]
    test: Sequence[Dialogue]
    num_short: int = 0  # dialogues without a response in the files to train on and to validate, which are left out


def read(config: DialogueOptions, num_bookings: int = 1_500) -> DialogueSplits:
    """The dialogues to train on, to validate and to test on; of bookings `num_bookings` to train on."""
    if config.dataset != "files":
        parts = bookings.splits(config.seed, num_bookings)
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


def read_file(config: DialogueOptions, path: Path) -> tuple[list[Dialogue], int]:
    """The dialogues of a file, and the number of those without a response, which are left out."""
    found = read_dialogues(path, config.max_length, count_words)
    return found.dialogues, found.num_short


def _hold_out(dialogues: Sequence[Dialogue], config: DialogueOptions) -> tuple[list[Dialogue], list[Dialogue]]:
    """Two parts without a common dialogue."""
    distinct = sorted({*dialogues})
    if len(distinct) < 4:
        raise ValueError(
            f"train={config.train} has {plural(len(distinct), 'different dialogue')}, too few to hold some out; "
            "give more, or --valid as well"
        )
    held = held_out_items(distinct, config.valid_share, config.seed, least=2)
    return [each for each in dialogues if each not in held], [each for each in dialogues if each in held]


@dataclass(frozen=True, kw_only=True)
class DialogueFingerprint(DataFingerprint):
    """Fingerprints of the dialogues of a run; a task adds the facts that it learned from them."""

    file: ClassVar[str] = "dialogues.json"
    unit: ClassVar[str] = "dialogues"

    def for_data(self, splits: DialogueSplits) -> Self:
        """The same facts for other dialogues."""
        train, valid = splits.train, splits.valid
        hashes = _digest(train), _digest(valid)
        return replace(self, train=len(train), valid=len(valid), train_sha256=hashes[0], valid_sha256=hashes[1])


def _digest(dialogues: Sequence[Dialogue]) -> str:
    return sha256_of("\t".join(dialogue) + "\n" for dialogue in dialogues)


def evaluation_dialogues(
    config: DialogueOptions, facts: DialogueFingerprint, folder: Path, options: DialogueEvaluation
) -> tuple[Sequence[Dialogue], str]:
    """The dialogues that a run is scored on, and their name."""
    path = options.test or (config.test if options.split == "test" else None) or config.valid
    if path is not None:
        return read_file(config, path)[0], str(path)
    splits = read(config)
    if config.dataset != "files":
        part = "test" if options.split == "test" else "validation"
        return splits.test if part == "test" else splits.valid, f"the {part} dialogues of {config.dataset}"
    facts.check_held_out(_digest(splits.valid), folder)
    none = ", which has no test dialogues" if options.split == "test" else ""
    return splits.valid, f"the validation dialogues of {folder}{none}"
