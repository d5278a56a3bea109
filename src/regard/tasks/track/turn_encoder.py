"""Turns of dialogues to the tensors that a tracker reads: words, the values that they name, and acts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.common.word_splitting import split_words
from regard.data.text.subword_inputs import SubwordEncoder
from regard.data.text.words import WordEncoder
from regard.data.tracking.dialogue import SystemAct, TrackedTurn
from regard.data.tracking.mentions import Mention, MentionFinder
from regard.models.tracking.inputs import AGES, PLACES, ActInputs, TrackingInputs, TurnWords
from regard.tasks.track.candidates import SlotCandidates

# stands for the words of a text that has none
_NOTHING = ("",)


class SystemMention(NamedTuple):
    """An act of the system, its place among those of its slot in its turn, from both ends, and where it was said."""

    act: SystemAct
    place: int
    rest: int
    turn: int
    mention: Mention | None  # None: by its label


class EncodedTurn(NamedTuple):
    """The words of a turn with the values that they name, and the acts of the system up to it."""

    number: int  # in its dialogue
    system: tuple[str, ...]
    user: tuple[str, ...]
    system_mentions: tuple[Mention, ...]
    user_mentions: tuple[Mention, ...]
    acts: tuple[SystemMention, ...]


class TurnEncoder:
    """Dialogues -> encoded turns -> tensors."""

    def __init__(
        self,
        candidates: SlotCandidates,
        words: WordEncoder | SubwordEncoder,
        *,
        acts: Literal["words", "labels"],
        history: int,
        max_length: int,
    ) -> None:
        self.candidates, self.words, self.history, self.acts = candidates, words, history, acts
        self.max_length = max_length
        self.finder = MentionFinder(candidates.ontology)
        self.names = {name: n for n, name in enumerate(candidates.names)}
        self.phrases = words.inputs([split_words(phrase)[0] or _NOTHING for phrase in candidates.phrases])

    def with_candidates(self, candidates: SlotCandidates) -> "TurnEncoder":
        """The same words with other values to find and to score."""
        return TurnEncoder(candidates, self.words, acts=self.acts, history=self.history, max_length=self.max_length)

    def encode(
        self, turns: Sequence[TrackedTurn], name: str = "the conversation", path: Path | None = None
    ) -> list[EncodedTurn]:
        """The turns of one dialogue; `name` and `path` are for errors."""
        prefix = "" if path is None else f"{path}: "
        encoded: list[EncodedTurn] = []
        acts: list[SystemMention] = []
        for number, turn in enumerate(turns):
            system, user = (
                self._split(text, f"{prefix}turn {number + 1} of {name}") for text in (turn.system, turn.user)
            )
            acts = [each for each in acts if number - each.turn <= self.history] + self._acts(turn, number)
            of_system, of_user = (
                (*self.finder.values(text), *self.finder.names(text)) for text in (turn.system, turn.user)
            )
            encoded.append(EncodedTurn(number, system, user, of_system, of_user, tuple(acts)))
        return encoded

    def _split(self, text: str, place: str) -> tuple[str, ...]:
        words, _ = split_words(text)
        if len(words) > self.max_length:
            raise ValueError(
                f"{place} has {len(words):,} words, more than max_length={self.max_length:,} of this run; shorten it, "
                "or train with a larger --max-length"
            )
        if isinstance(self.words, SubwordEncoder):
            self.words.check_length(words, place)
        return words

    def _acts(self, turn: TrackedTurn, number: int) -> list[SystemMention]:
        recognized = self.finder.acts(turn.system)
        acts = turn.acts if self.acts == "labels" else tuple(recognized)
        of_slots: dict[str, list[SystemAct]] = {}
        for act in acts:
            of_slots.setdefault(act.slot, []).append(act)
        return [
            SystemMention(
                act, of_slots[act.slot].index(act), of_slots[act.slot][::-1].index(act), number, recognized.get(act)
            )
            for act in acts
            if act.slot in self.names
        ]

    def inputs(
        self,
        turns: Sequence[EncodedTurn],
        rng: np.random.Generator | None = None,
        word_dropout: float = 0.0,
        value_dropout: float = 0.0,
    ) -> TrackingInputs:
        """The tensors of turns; with `rng`, these shares of words, and of words of values, are unknown ones."""
        names = len(self.names)
        sides = []
        for texts, mentions in (
            ([turn.user for turn in turns], [turn.user_mentions for turn in turns]),
            ([turn.system for turn in turns], [turn.system_mentions for turn in turns]),
        ):
            read = [text or _NOTHING for text in texts]
            dropped = None
            if rng is not None:
                dropped = np.concatenate(
                    [
                        _dropped(len(text), row_mentions, rng, word_dropout, value_dropout)
                        for text, row_mentions in zip(read, mentions, strict=True)
                    ]
                )
            topics = np.zeros((len(turns), max(map(len, read)), names), np.float32)
            for row, row_mentions in enumerate(mentions):
                for each in row_mentions:
                    topics[row, each.start : each.end, self.names[each.slot]] = 1
            lengths = torch.tensor([len(text) for text in texts])
            sides.append(TurnWords(self.words.inputs(read, dropped), lengths, torch.from_numpy(topics)))
        user, system = sides
        index, topic_of = self.candidates.index, torch.tensor(self.candidates.topic_of)
        mentioned = np.zeros((*user.topics.shape[:2], len(topic_of)), np.float32)
        for row, turn in enumerate(turns):
            for each in turn.user_mentions:
                if (candidate := index.get((each.slot, each.value))) is not None:
                    mentioned[row, each.start : each.end, candidate] = 1
        topic_names = torch.tensor([self.names[topic] for topic in self.candidates.topics])
        return TrackingInputs(
            user,
            system,
            torch.from_numpy(mentioned),
            self._act_inputs(turns),
            torch.tensor([turn.number for turn in turns]),
            self.phrases,
            topic_of,
            topic_names,
        )

    def _act_inputs(self, turns: Sequence[EncodedTurn]) -> ActInputs:
        shape = len(turns), 1 + max(len(turn.acts) for turn in turns)
        names, candidates, places = np.full(shape, -2), np.full(shape, -1), np.zeros((*shape, 3), np.int64)
        names[:, 0] = -1
        for row, turn in enumerate(turns):
            for n, each in enumerate(turn.acts, 1):
                names[row, n] = self.names[each.act.slot]
                candidates[row, n] = self.candidates.index.get(each.act, -1) if each.act.value else -1
                age = min(turn.number - each.turn, AGES - 1)
                places[row, n] = min(each.place, PLACES - 1), min(each.rest, PLACES - 1), age
        return ActInputs(*map(torch.from_numpy, (names, candidates, places)))


def whole_batches(lengths: Sequence[int], most: int) -> list[range]:
    """Examples of these lengths in batches that follow each other: as many as fit into `most`, one at least."""
    batches, first, total = [], 0, 0
    for n, length in enumerate(lengths):
        if n > first and total + length > most:
            batches.append(range(first, n))
            first, total = n, 0
        total += length
    return [*batches, range(first, len(lengths))] if lengths else []


def _dropped(
    count: int, mentions: Sequence[Mention], rng: np.random.Generator, word_dropout: float, value_dropout: float
) -> NDArray[np.bool_]:  # "count"
    """The words that are unknown in training; a value is dropped whole."""
    dropped = rng.random(count) < word_dropout
    draws = rng.random(len(mentions)) < value_dropout
    for mention, draw in zip(mentions, draws.tolist(), strict=True):
        if mention.value:
            dropped[mention.start : mention.end] = draw
    return dropped
