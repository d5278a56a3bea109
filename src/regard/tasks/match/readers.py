"""Readers: pairs of texts to the tensors that a model reads, and to the names of its tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.word_splitting import split_words
from regard.data.text.special_tokens import UNK
from regard.data.text.words import WordEncoder, normal
from regard.inference.embedded_classifier import TokenInput
from regard.inference.token_places import TokenPlace, VocabularyTexts, word_places

Tokens = TypeVar("Tokens")
# an odd factor near 2³² divided by the golden ratio spreads neighbouring numbers  (Knuth 1998, 6.4)
_HASH_FACTOR = 2654435769
# a text has at most this many words that the other has not, as a feature
_MOST_ALONE = 8


# a word in the place of a text that has lost all its own
_UNKNOWN = "\ufffd"


def _word_input(first: str, second: str, number: Callable[[str], int]) -> TokenInput:
    """The words of two texts; `number` is the row of a word in the embedding."""
    texts = [split_words(text)[0] for text in (first, second)]
    words = (*texts[0], *texts[1])
    sizes = (len(texts[0]), len(texts[1]))
    return TokenInput(words, tuple(map(number, words)), (False,) * len(words), sizes, (0,) * len(words))


class PairReader(ABC, Generic[Tokens]):
    """pairs of texts -> tokens of each pair -> tensors."""

    @property
    def paddings(self) -> tuple[int | None, ...]:
        """The rows of the embeddings of both texts that stand for no token; None: a vector of zeros does."""
        return (None, None)

    @abstractmethod
    def tokenize(self, first: Sequence[str], second: Sequence[str]) -> list[Tokens]:
        """The tokens of every pair."""

    @abstractmethod
    def lengths(self, tokens: Tokens) -> tuple[int, int]:
        """The sizes of a pair, by which similar ones are read together."""

    @abstractmethod
    def inputs(self, pairs: Sequence[Tokens], dropout: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        """The tensors of pairs; `dropout` is the share of words, sampled by `rng`, that are read as unknown."""

    @abstractmethod
    def names(self, tokens: Tokens) -> tuple[Sequence[str], Sequence[str]]:
        """The tokens of both texts for display."""

    # For attributions, which leave tokens out and change their vectors

    @abstractmethod
    def token_input(self, first: str, second: str) -> TokenInput:
        """The tokens of a pair one by one."""

    @abstractmethod
    def from_tokens(self, tokens: TokenInput) -> Tokens:
        """The pair of these tokens; a text without any has an unknown one."""

    @abstractmethod
    def vector_places(self, tokens: Sequence[TokenInput]) -> list[list[tuple[int, int, int]]]:
        """The call, the row and the column of the vector of every token, in the layers of the model that embed."""

    @abstractmethod
    def token_texts(self) -> VocabularyTexts:
        """The vocabulary of the model's embedding."""

    @abstractmethod
    def token_places(self, first: str, second: str) -> list[list[TokenPlace]]:
        """The tokens of each text that the model's embedding reads."""


class PairWords(NamedTuple):
    """The words of both texts."""

    first: tuple[str, ...]
    second: tuple[str, ...]


class WordReader(PairReader[PairWords]):
    """Words with their characters; the first texts of a batch stand above the second ones."""

    def __init__(self, words: Sequence[str], characters: Sequence[str]) -> None:
        self.encoder = WordEncoder(words, characters)

    def tokenize(self, first: Sequence[str], second: Sequence[str]) -> list[PairWords]:
        sides = [[split_words(text)[0] for text in texts] for texts in (first, second)]
        return [PairWords(*pair) for pair in zip(*sides, strict=True)]

    def lengths(self, tokens: PairWords) -> tuple[int, int]:
        return len(tokens.first), len(tokens.second)

    def inputs(self, pairs: Sequence[PairWords], dropout: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        rows = [pair.first for pair in pairs] + [pair.second for pair in pairs]
        dropped = None if rng is None or not dropout else rng.random(sum(map(len, rows))) < dropout
        return self.encoder.inputs(rows, dropped)

    def names(self, tokens: PairWords) -> tuple[Sequence[str], Sequence[str]]:
        return tokens

    def token_input(self, first: str, second: str) -> TokenInput:
        return _word_input(first, second, lambda word: self.encoder.words.get(normal(word), UNK))

    def from_tokens(self, tokens: TokenInput) -> PairWords:
        first, second = (tuple(words) or (_UNKNOWN,) for words in tokens.parts(tokens.names))
        return PairWords(first, second)

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[list[tuple[int, int, int]]]:
        return [
            [(0, n + side * len(tokens), column) for side, size in enumerate(each.sizes) for column in range(size)]
            for n, each in enumerate(tokens)
        ]

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts.of_words(self.encoder)

    def token_places(self, first: str, second: str) -> list[list[TokenPlace]]:
        return [word_places(self.encoder, text) for text in (first, second)]


class FeatureReader(PairReader[NDArray[np.int64]]):
    """The features of a bag of words: the words of one text alone, of both, and pairs of words across the texts.

    Words are compared as they are spelled, in lower case; those outside of the vocabulary have no feature of their own,
    but count in the number of words that a text has alone. Pairs share `buckets` by a hash.
    """

    def __init__(self, words: Sequence[str], buckets: int) -> None:
        self.words = {word: n for n, word in enumerate(words)}
        self.buckets = buckets
        self.size = 3 * len(words) + 2 * (_MOST_ALONE + 1) + buckets

    def tokenize(self, first: Sequence[str], second: Sequence[str]) -> list[NDArray[np.int64]]:
        return [self.features(*pair) for pair in zip(first, second, strict=True)]

    def features(self, first: str, second: str) -> NDArray[np.int64]:
        """The numbers of the features of a pair, from 1, each once."""
        a, b = ({normal(word) for word in split_words(text)[0]} for text in (first, second))
        parts = a - b, b - a, a & b
        known = [sorted(self.words[word] for word in part if word in self.words) for part in parts]
        count = len(self.words)
        singles = [1 + n * count + word for n, words in enumerate(known) for word in words]
        alone = [1 + 3 * count + n * (_MOST_ALONE + 1) + min(len(parts[n]), _MOST_ALONE) for n in range(2)]
        start = 1 + 3 * count + 2 * (_MOST_ALONE + 1)
        pairs = {
            start + ((x * count + y) * _HASH_FACTOR % (1 << 32)) * self.buckets // (1 << 32)
            for x in known[0]
            for y in known[1]
        }
        return np.array([*singles, *alone, *sorted(pairs)], np.int64)

    def lengths(self, tokens: NDArray[np.int64]) -> tuple[int, int]:
        return len(tokens), len(tokens)

    def inputs(
        self, pairs: Sequence[NDArray[np.int64]], dropout: float = 0.0, rng: np.random.Generator | None = None
    ) -> Tensor:  # -> "b f"
        features = np.zeros((len(pairs), max(map(len, pairs))), np.int64)
        for n, row in enumerate(pairs):
            features[n, : len(row)] = row
        return torch.from_numpy(features)

    def names(self, tokens: NDArray[np.int64]) -> tuple[Sequence[str], Sequence[str]]:
        return (), ()

    def token_input(self, first: str, second: str) -> TokenInput:
        return _word_input(first, second, lambda word: 0)

    def from_tokens(self, tokens: TokenInput) -> NDArray[np.int64]:
        first, second = (" ".join(words) for words in tokens.parts(tokens.names))
        return self.features(first, second)

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[list[tuple[int, int, int]]]:
        return [[] for _ in tokens]

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts.of_words(WordEncoder([*self.words], ()))

    def token_places(self, first: str, second: str) -> list[list[TokenPlace]]:
        encoder = WordEncoder([*self.words], ())
        return [word_places(encoder, text) for text in (first, second)]

    def counts(self, pairs: Sequence[NDArray[np.int64]]) -> Tensor:  # -> sparse "n f+1"
        """The features of every pair as ones, column 0 of padding empty."""
        rows = np.repeat(np.arange(len(pairs)), [len(row) for row in pairs])
        index = torch.from_numpy(np.stack([rows, np.fromiter(chain.from_iterable(pairs), np.int64)]))
        size = (len(pairs), self.size + 1)
        return torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), size, check_invariants=True).coalesce()
