"""Texts to the tensors that a selector reads: words, or the tokens of an encoder, at most as many as it reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.common.word_splitting import split_words
from regard.data.text.words import WordEncoder, WordInputs
from regard.models.matching.response_selector import DialogueInputs, TokenTexts
from regard.tasks.shared.encoder import PretrainedEncoder


class TurnWordReader:
    """texts -> words -> tensors; an empty text has no words."""

    def __init__(self, words: Sequence[str], most: int) -> None:
        self.encoder, self.most = WordEncoder(words, ()), most

    def tokenize(self, texts: Sequence[str]) -> list[tuple[Any, ...]]:
        """The first words of every text."""
        return [split_words(text)[0][: self.most] for text in texts]

    def num_cut(self, texts: Sequence[str]) -> int:
        """The number of texts with more words than are read."""
        return sum(len(split_words(text)[0]) > self.most for text in texts)

    def inputs(self, texts: Sequence[tuple[Any, ...]]) -> WordInputs:
        return self.encoder.inputs(texts)

    def names(self, tokens: tuple[Any, ...]) -> list[str]:
        """The words for display."""
        return list(tokens)


class TurnTokenReader:
    """The same with the sub-words of an encoder, and the tokens at the beginning and the end of a text."""

    def __init__(self, encoder: PretrainedEncoder, most: int) -> None:
        self.tokenizer, self.most = encoder.tokenizer, most

    def tokenize(self, texts: Sequence[str]) -> list[tuple[Any, ...]]:
        filled = [text for text in texts if text.strip()]
        encoded = iter(self.tokenizer.encode(filled, self.most))
        return [next(encoded).ids if text.strip() else () for text in texts]

    def num_cut(self, texts: Sequence[str]) -> int:
        return sum(each.num_cut > 0 for each in self.tokenizer.encode(list(texts), self.most))

    def inputs(self, texts: Sequence[tuple[Any, ...]]) -> TokenTexts:
        lengths = np.array([len(ids) for ids in texts], np.int64)
        tokens = np.full((len(texts), max(int(lengths.max(initial=0)), 1)), self.tokenizer.pad, np.int64)
        for n, ids in enumerate(texts):
            tokens[n, : len(ids)] = ids
        return TokenTexts(torch.from_numpy(tokens), torch.from_numpy(lengths))

    def names(self, tokens: tuple[Any, ...]) -> list[str]:
        return self.tokenizer.pieces(tokens)


TurnReader = TurnWordReader | TurnTokenReader


def dialogue_inputs(reader: TurnReader, pairs: Sequence[tuple[Sequence[str], str]], turns: int) -> DialogueInputs:
    """The tensors of dialogues with one response each; the last `turns` are read, empty ones stand before them."""
    contexts = [[*[""] * (turns - len(given)), *given[-turns:]] for given, _ in pairs]
    texts = [turn for each in contexts for turn in each] + [response for _, response in pairs]
    return DialogueInputs(reader.inputs(reader.tokenize(texts)), turns)
