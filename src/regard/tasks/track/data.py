"""The dialogues of a run: their splits, the ontology and words that the run records, and string matching."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

from regard.common.word_splitting import split_words
from regard.common.wording import plural
from regard.data.embedded import bookings
from regard.data.splitting import held_out, require_held_out, split_items
from regard.data.text.words import normal, repeated_words
from regard.data.tracking.dialogue import Ontology, TrackedDialogue, TrackedTurn
from regard.data.tracking.files import read_ontology, read_tracked
from regard.data.tracking.mentions import MentionFinder
from regard.data.unseen_labels import unseen_notes
from regard.metrics.tracking import TurnLabels
from regard.tasks.shared.data_fingerprint import DataFingerprint, TrainingSplits, sha256_of
from regard.tasks.track.options import Track


@dataclass(frozen=True)
class OntologySplits:
    """The dialogues of a run, its ontology, and the corrections of its labels with their numbers."""

    train: Sequence[TrackedDialogue]
    valid: Sequence[TrackedDialogue]
    test: Sequence[TrackedDialogue]
    ontology: Ontology
    corrections: Mapping[str, int] = field(default_factory=dict)


def read(config: Track) -> OntologySplits:
    """The dialogues to train on, to validate and to test on; labels of the first are in the ontology.

    Labels of files to validate and to test on may be outside: they count as missed.
    """
    if config.dataset != "files":
        parts = bookings.splits(config.seed)
        train, valid, test = (
            [bookings.tracked(booking, str(n)) for n, booking in enumerate(part)]
            for part in (parts.train, parts.valid, parts.test)
        )
        return OntologySplits(train, valid, test, bookings.ontology())
    assert config.train is not None
    files = {path: read_tracked(path) for path in (config.train, config.valid, config.test) if path is not None}
    corrections = sum((Counter(file.corrections) for file in files.values()), Counter[str]())
    train = files[config.train].dialogues
    if config.acts == "labels" and not any(turn.acts for dialogue in train for turn in dialogue.turns):
        raise ValueError(
            f"acts='labels' needs labels of what the system does, but no turn of train={config.train} has one; add "
            "them, in a column acts, or find acts in the words of the system by --acts words"
        )
    if config.valid is None:
        held = held_out(contents(train), config.valid_share, config.seed)
        require_held_out(held, f"train={config.train}", "dialogues")
        train, valid = split_items(train, held)
    else:
        valid = files[config.valid].dialogues
    ontology = _ontology(config, [*train, *valid])
    ontology.check(files[config.train].dialogues, config.train)
    test = valid if config.test is None else files[config.test].dialogues
    return OntologySplits(train, valid, test, ontology, corrections)


def _ontology(config: Track, dialogues: Sequence[TrackedDialogue]) -> Ontology:
    ontology = Ontology.of(dialogues) if config.ontology is None else read_ontology(config.ontology)
    # the file of MultiWOZ names no requests
    return ontology if ontology.requests else replace(ontology, requests=Ontology.of(dialogues).requests)


def contents(dialogues: Sequence[TrackedDialogue]) -> list[str]:
    """The turns of every dialogue, by which copies are known; their labels may differ."""
    return ["\n".join(f"{turn.system}\t{turn.user}" for turn in dialogue.turns) for dialogue in dialogues]


@dataclass(frozen=True, kw_only=True)
class TrackingFacts(DataFingerprint):
    """The ontology and the words of a run, and fingerprints of its dialogues."""

    file: ClassVar[str] = "ontology.json"
    unit: ClassVar[str] = "dialogues"

    slots: dict[str, list[str]]
    requests: list[str]
    words: list[str]

    @staticmethod
    def of(splits: OntologySplits, vocabulary: int) -> "TrackingFacts":
        ontology = splits.ontology
        turns = [turn for dialogue in splits.train for turn in dialogue.turns]
        texts = [text for turn in turns for text in (turn.system, turn.user)]
        repeated = repeated_words([split_words(text)[0] for text in texts], vocabulary)
        phrases = [*ontology.requests, *(text for slot in ontology.slots for text in (slot, *ontology.values(slot)))]
        # all words of the ontology have vectors, also those of values that occur once or never
        named = [normal(word) for phrase in phrases for word in split_words(phrase)[0]]
        empty = TrackingFacts(
            slots={slot: list(values) for slot, values in ontology.slots.items()},
            requests=list(ontology.requests),
            words=list(dict.fromkeys((*repeated, *named))),
        )
        return empty.for_data(splits)

    def for_data(self, splits: TrainingSplits) -> Self:
        """The same ontology and words for other dialogues; labels to train on must be in the ontology."""
        self.ontology.check(splits.train, Path("the data"))
        return super().for_data(splits)

    @staticmethod
    def digest(dialogues: Sequence[TrackedDialogue]) -> str:
        turns = (turn for dialogue in dialogues for turn in dialogue.turns)
        return sha256_of(
            f"{turn.system}\t{turn.user}\t{sorted(turn.informs.items())}\t{turn.requests}\t{sorted(turn.state.items())}\n"
            for turn in turns
        )

    @property
    def ontology(self) -> Ontology:
        return Ontology({slot: tuple(values) for slot, values in self.slots.items()}, tuple(self.requests))


def unseen_value_notes(dialogues: Sequence[TrackedDialogue], ontology: Ontology) -> list[str]:
    """A sentence about the values and requests that are not in the ontology; none if there are none."""
    outside = [labels for dialogue in dialogues for turn in dialogue.turns if (labels := ontology.unseen(turn))]
    names = sorted({name for labels in outside for name in labels})
    return unseen_notes("values or requests", names, plural(len(outside), "turn"))


def parse_conversation(text: str) -> tuple[TrackedTurn, ...]:
    """The turns of a conversation, separated by line breaks or tabs: the last is of the user, before it they alternate.

    They have no labels.
    """
    said = [" ".join(line.split()) for line in text.strip("\n").replace("\t", "\n").split("\n")]
    if not any(said):
        raise ValueError(
            "the conversation is empty; give the turns of user and system on lines of their own, the user last"
        )
    # a conversation that the user begins has no words of the system in front
    lines = ["", *said] if len(said) % 2 else list(said)
    return tuple(TrackedTurn(lines[n], (), lines[n + 1], {}, (), {}) for n in range(0, len(lines), 2))


def write_conversation(dialogue: TrackedDialogue) -> str:
    """The text that `parse_conversation` reads."""
    lines = [line for turn in dialogue.turns for line in (turn.system, turn.user)]
    return "\n".join(" ".join(line.split()) for line in (lines if lines[0] else lines[1:]))


def right_labels(dialogues: Sequence[TrackedDialogue]) -> list[list[TurnLabels]]:
    """The labels of every turn."""
    return [
        [TurnLabels(turn.informs, frozenset(turn.requests), turn.state) for turn in dialogue.turns]
        for dialogue in dialogues
    ]


def matched_labels(dialogues: Sequence[TrackedDialogue], ontology: Ontology) -> list[list[TurnLabels]]:
    """String matching, the baseline: the values and requests that the words of the user name."""
    finder, requests = MentionFinder(ontology), frozenset(ontology.requests)
    return [
        [
            TurnLabels(finder.informs(turn.user), requests & {each.slot for each in finder.names(turn.user)})
            for turn in dialogue.turns
        ]
        for dialogue in dialogues
    ]
