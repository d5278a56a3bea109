"""Tf-idf: texts as counts of words, each weighted by its rarity; the baseline of retrieval.

w(t, word) = (1 + log count) · (1 + log((1 + N) / (1 + texts with the word))), as unit vectors  (Salton & Buckley 1988).
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.common.word_splitting import split_words


def words_of(text: str) -> list[str]:
    """The words and signs of a text, in lower case."""
    return [*split_words(text.lower(), "alphanumeric")[0]]


class TfIdf:
    """Candidates as vectors; rarity is counted over them."""

    def __init__(self, candidates: Sequence[str]) -> None:
        counts = [Counter(words_of(text)) for text in candidates]
        self.frequency, self.count = Counter(word for each in counts for word in each), len(candidates)
        postings: dict[str, list[tuple[int, float]]] = {word: [] for word in self.frequency}
        for column, text in enumerate(counts):
            for word, weight in _weights(text, self.frequency, self.count).items():
                postings[word].append((column, weight))
        self.postings = {
            word: (np.array([n for n, _ in each]), np.array([w for _, w in each])) for word, each in postings.items()
        }

    def similarity(self, query: str) -> NDArray[np.float64]:  # -> "c"
        """The cosine of a query with every candidate.

        A word that no candidate has counts for the length of the query alone; a text without words has cosine 0.
        """
        row = np.zeros(self.count)
        for word, weight in _weights(Counter(words_of(query)), self.frequency, self.count).items():
            if word in self.postings:
                columns, weights = self.postings[word]
                row[columns] += weight * weights
        return row


def _weights(text: Counter[str], frequency: Counter[str], count: int) -> dict[str, float]:
    """The unit vector of a text, by words."""
    weights = {
        word: (1 + math.log(times)) * (1 + math.log((1 + count) / (1 + frequency[word])))
        for word, times in text.items()
    }
    norm = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {word: weight / norm for word, weight in weights.items()}
