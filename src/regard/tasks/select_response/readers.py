"""Texts to the tensors that a selector reads: words, or the tokens of an encoder, at most as many as it reads."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.common.word_splitting import split_words
from regard.data.text.words import WordEncoder, WordInputs
from regard.models.matching.response_selector import DialogueInputs, TokenTexts
from regard.tasks.shared.encoder import PretrainedEncoder


class TurnReader(ABC):
    """texts -> tokens -> tensors; an empty text has no tokens."""

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> list[tuple[Any, ...]]:
        """The first tokens of every text."""

    @abstractmethod
    def num_cut(self, texts: Sequence[str]) -> int:
        """The number of texts with more tokens than are read."""

    @abstractmethod
    def inputs(self, texts: Sequence[tuple[Any, ...]]) -> WordInputs | TokenTexts:
        """The tensors of texts, given as tokens."""

    @abstractmethod
    def names(self, tokens: tuple[Any, ...]) -> list[str]:
        """The tokens of a text for display."""


class TurnWordReader(TurnReader):
    """Words."""

    def __init__(self, words: Sequence[str], most: int) -> None:
        self.encoder, self.most = WordEncoder(words, ()), most

    def tokenize(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        return [split_words(text)[0][: self.most] for text in texts]

    def num_cut(self, texts: Sequence[str]) -> int:
        return sum(len(split_words(text)[0]) > self.most for text in texts)

    def inputs(self, texts: Sequence[tuple[str, ...]]) -> WordInputs:
        return self.encoder.inputs(texts)

    def names(self, tokens: tuple[str, ...]) -> list[str]:
        return list(tokens)


class TurnTokenReader(TurnReader):
    """The sub-words of an encoder, with the tokens at the beginning and the end of a text."""

    def __init__(self, encoder: PretrainedEncoder, most: int) -> None:
        self.tokenizer, self.most = encoder.tokenizer, most

    def tokenize(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        filled = [text for text in texts if text.strip()]
        encoded = iter(self.tokenizer.encode(filled, self.most))
        return [next(encoded).ids if text.strip() else () for text in texts]

    def num_cut(self, texts: Sequence[str]) -> int:
        return sum(each.num_cut > 0 for each in self.tokenizer.encode(list(texts), self.most))

    def inputs(self, texts: Sequence[tuple[int, ...]]) -> TokenTexts:
        lengths = np.array([len(ids) for ids in texts], np.int64)
        tokens = np.full((len(texts), max(int(lengths.max(initial=0)), 1)), self.tokenizer.pad, np.int64)
        for n, ids in enumerate(texts):
            tokens[n, : len(ids)] = ids
        return TokenTexts(torch.from_numpy(tokens), torch.from_numpy(lengths))

    def names(self, tokens: tuple[int, ...]) -> list[str]:
        return self.tokenizer.pieces(tokens)


def dialogue_inputs(reader: TurnReader, pairs: Sequence[tuple[Sequence[str], str]], turns: int) -> DialogueInputs:
    """The tensors of dialogues with one response each; the last `turns` are read, empty ones stand before them."""
    contexts = [[*[""] * (turns - len(given)), *given[-turns:]] for given, _ in pairs]
    texts = [turn for each in contexts for turn in each] + [response for _, response in pairs]
    return DialogueInputs(reader.inputs(reader.tokenize(texts)), turns)
