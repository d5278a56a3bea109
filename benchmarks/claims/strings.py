"""Strings of the data set recall as tensors."""

from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.embedded import recall
from regard.data.text.labelled import LabelledTexts

_CHARACTERS = digits + recall.QUESTION + ascii_uppercase + ascii_lowercase
VOCABULARY = len(_CHARACTERS)
CLASSES = len(recall.CLASSES)


class Strings(NamedTuple):
    """Strings of one length, their answers, and how many places back these stand."""

    tokens: Tensor  # "n t"
    answers: Tensor  # "n"
    back: Tensor  # "n"

    @staticmethod
    def of(part: LabelledTexts) -> "Strings":
        tokens = torch.tensor([[_CHARACTERS.index(character) for character in text] for text in part.texts])
        back = torch.tensor([len(text) - recall.answer_place(text) for text in part.texts])
        return Strings(tokens, torch.from_numpy(part.labels), back)

    def accuracy(self, predicted: Tensor, nearest: int = 0, farthest: int | None = None) -> float:
        """The percentage of answers that are right, of those that stand this far back."""
        chosen = self.back >= nearest
        if farthest is not None:
            chosen &= self.back <= farthest
        return 100 * float((predicted == self.answers)[chosen].double().mean())


def strings(seed: int, train: int, test: int, **sizes: Any) -> tuple[Strings, Strings]:
    """Strings to train on, and others to test on."""
    parts = recall.splits(seed, train, 1, test, **sizes)
    return Strings.of(parts.train), Strings.of(parts.test)
