"""The tensors of turns that a tracker reads."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.text.subword_inputs import SubwordInputs
from regard.data.text.words import WordInputs

Words = WordInputs | SubwordInputs

# acts of the same topic in one turn, and earlier turns, are counted up to these numbers
PLACES, AGES = 5, 5


class TurnWords(NamedTuple):
    """The words of one speaker in n turns; an empty text is one unknown word, whose length is 0."""

    words: Words  # n texts
    lengths: Tensor  # "n"
    topics: Tensor  # "n t m", 1 where a word is part of name m, or of a value of that slot

    def to(self, device: torch.device) -> "TurnWords":
        parts: tuple[Any, ...] = self
        return TurnWords(*(part.to(device) for part in parts))


class ActInputs(NamedTuple):
    """The acts of the system up to a turn. The first is none, so that a turn need not attend to any other."""

    names: Tensor  # "n a", the number of its slot's name, −1 for the first one, −2 for padding
    candidates: Tensor  # "n a", the value that it names, −1 for none
    places: Tensor  # "n a 3", its place among those of its topic and turn, from the front and the back, and its age

    def to(self, device: torch.device) -> "ActInputs":
        return ActInputs(*(t.to(device) for t in self))


class TrackingInputs(NamedTuple):
    """n turns, and the phrases to score: those of topics, then those of candidates.

    A tracker that reads the turns before needs whole dialogues, one after the other.

    Topics are slots and requests; candidates are the values of all slots, and the requests themselves.
    """

    user: TurnWords
    system: TurnWords
    mentions: Tensor  # "n t c", 1 where a word of the user is one of candidate c
    acts: ActInputs
    numbers: Tensor  # "n", of the turns in their dialogues, from 0 on
    phrases: Words  # k + c texts
    topics: Tensor  # "c", the topic of a candidate
    names: Tensor  # "k", the number of a topic's name: a slot that can be asked for is two topics with one name

    def to(self, device: torch.device) -> "TrackingInputs":
        parts: tuple[Any, ...] = self
        return TrackingInputs(*(part.to(device) for part in parts))
