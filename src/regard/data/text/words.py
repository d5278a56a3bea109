"""Words as numbers and as characters."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.special_tokens import PAD, SPECIAL, UNK


def normal(word: str) -> str:
    """The word as its vector is looked up: lower case, every digit 0. Its characters are read as they are."""
    return re.sub(r"\d", "0", word.lower())


def repeated_words(sentences: Iterable[Sequence[str]], most: int) -> list[str]:
    """The normal forms that occur more than once, the most frequent first; all of them if each occurs once.

    Words that occur once stay unknown, so that a model learns to read unknown words.
    """
    counts = Counter(normal(word) for sentence in sentences for word in sentence)
    return [word for word, count in counts.most_common(most) if count > 1] or list(counts)


def repeated_characters(sentences: Iterable[Sequence[str]]) -> list[str]:
    """The characters that occur more than once, sorted."""
    counts = Counter(character for sentence in sentences for word in sentence for character in word)
    return sorted(character for character, count in counts.items() if count > 1)


class WordInputs(NamedTuple):
    """Sentences of words; characters are those of the distinct words of the batch, which `spellings` counts."""

    words: Tensor  # "b t"
    spellings: Tensor  # "b t", rows of characters
    characters: Tensor  # "n c"
    lengths: Tensor  # "b"

    def to(self, device: torch.device) -> "WordInputs":
        return WordInputs(*(t.to(device) for t in self))


class WordEncoder:
    """Words to their numbers, and to those of their characters; the first number of either is SPECIAL."""

    def __init__(self, words: Sequence[str], characters: Sequence[str]) -> None:
        """`words` are normal forms."""
        self.words = {word: n for n, word in enumerate(words, SPECIAL)}
        self.characters = {character: n for n, character in enumerate(characters, SPECIAL)}

    def number(self, word: str) -> int:
        """The number of the word's vector."""
        return self.words.get(normal(word), UNK)

    def inputs(self, sentences: Sequence[Sequence[str]], dropped: NDArray[np.bool_] | None = None) -> WordInputs:
        """The tensors of sentences; `dropped` marks words, in their order, whose vector is the unknown one."""
        lengths = [len(sentence) for sentence in sentences]
        shape = (len(sentences), max(lengths, default=0))
        words, spellings = np.full(shape, PAD, np.int64), np.zeros(shape, np.int64)
        rows: dict[str, int] = {}
        for n, sentence in enumerate(sentences):
            words[n, : len(sentence)] = [self.number(word) for word in sentence]
            spellings[n, : len(sentence)] = [rows.setdefault(word, len(rows)) for word in sentence]
        if dropped is not None:
            inside = np.arange(shape[1]) < np.array(lengths)[:, None]
            words[inside] = np.where(dropped, UNK, words[inside])
        characters = np.full((max(len(rows), 1), max([1, *map(len, rows)])), PAD, np.int64)
        for word, row in rows.items():
            characters[row, : len(word)] = [self.characters.get(character, UNK) for character in word]
        tensors = map(torch.from_numpy, (words, spellings, characters, np.array(lengths, np.int64)))
        return WordInputs(*tensors)
