"""Constraints: which tokens may replace a token of a text."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.common import checks
from regard.inference.token_places import VocabularyTexts


class Constraint(ABC):
    """A rule on replacements: whether token v may stand in place of a token."""

    @abstractmethod
    def allowed(
        self, vocabulary: VocabularyTexts, vectors: Tensor, tokens: Sequence[int], written: Sequence[str]
    ) -> Tensor:
        """For `tokens` of a text, which are `written` so, and every v of the vocabulary, "v d": "n v"."""


@dataclass(frozen=True)
class CosineSimilarity(Constraint):
    """cos(e_v, e_x) ≥ least, by the model's own vectors."""

    least: float = 0.5

    def __post_init__(self) -> None:
        if not -1 <= self.least <= 1:
            raise ValueError(f"least must be a cosine, from -1 to 1, got {self.least:g}; try least=0.5")

    def allowed(
        self, vocabulary: VocabularyTexts, vectors: Tensor, tokens: Sequence[int], written: Sequence[str]
    ) -> Tensor:
        unit = F.normalize(vectors, dim=-1)
        return unit[list(tokens)] @ unit.mT >= self.least


@dataclass(frozen=True)
class EditDistance(Constraint):
    """At most `most` characters are inserted, deleted or substituted  (Levenshtein 1966)."""

    edits: int = 2

    def __post_init__(self) -> None:
        checks.positive_ints("EditDistance", edits=self.edits)

    def allowed(
        self, vocabulary: VocabularyTexts, vectors: Tensor, tokens: Sequence[int], written: Sequence[str]
    ) -> Tensor:
        texts = [text or "" for text in vocabulary.texts]
        rows = {word: edit_distances(word, texts) <= self.edits for word in dict.fromkeys(written)}
        return torch.from_numpy(np.stack([rows[word] for word in written])).to(vectors.device)


@dataclass(frozen=True)
class SameStart(Constraint):
    """Pieces that continue a word are replaced by such pieces, and those that begin a word by those that begin one."""

    def allowed(
        self, vocabulary: VocabularyTexts, vectors: Tensor, tokens: Sequence[int], written: Sequence[str]
    ) -> Tensor:
        continues = torch.tensor(vocabulary.continues, device=vectors.device)
        return continues[list(tokens), None] == continues


def edit_distances(word: str, others: Sequence[str]) -> NDArray[np.int64]:  # -> "n"
    """The Levenshtein distances of a word to others, all at once."""
    lengths = np.array([len(other) for other in others])
    letters = np.zeros((len(others), max(1, int(lengths.max(initial=0)))), np.int64)
    for n, other in enumerate(others):
        letters[n, : len(other)] = [ord(letter) for letter in other]
    row = np.broadcast_to(np.arange(letters.shape[1] + 1), (len(others), letters.shape[1] + 1)).copy()
    for i, letter in enumerate(word, 1):
        previous, row = row, np.empty_like(row)
        row[:, 0] = i
        for j in range(1, row.shape[1]):
            substituted = previous[:, j - 1] + (letters[:, j - 1] != ord(letter))
            row[:, j] = np.minimum(np.minimum(previous[:, j], row[:, j - 1]) + 1, substituted)
    return row[np.arange(len(others)), lengths]
