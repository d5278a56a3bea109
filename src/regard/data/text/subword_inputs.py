"""Sentences of words as the sub-words of a pretrained encoder: tensors, and the sub-words of each word."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.subwords import EncodedText, SubwordTokenizer, first_places
from regard.data.text.words import WordEncoder


class SubwordInputs(NamedTuple):
    """Sentences as sub-words, and the words that they are of."""

    tokens: Tensor  # "b p"
    num_tokens: Tensor  # "b"
    word_ids: Tensor  # "b p", the number of the word of each token; t, the longest sentence, for tokens of no word
    firsts: Tensor  # "b t", the place of the first sub-word of each word
    lengths: Tensor  # "b", in words
    spellings: Tensor  # "b t", rows of characters
    characters: Tensor  # "n c", of the distinct words of the batch

    def to(self, device: torch.device) -> "SubwordInputs":
        return SubwordInputs(*(t.to(device) for t in self))


class SubwordEncoder:
    """Words to the sub-words of an encoder that reads at most `longest` tokens; None is any number.

    Words are also given by their `characters`, which a tokenizer may have changed to lower case.
    """

    def __init__(self, tokenizer: SubwordTokenizer, longest: int | None, characters: Sequence[str] = ()) -> None:
        self.tokenizer, self.longest = tokenizer, longest
        self.words = WordEncoder((), characters)

    def encode(self, words: Sequence[str]) -> EncodedText:
        (encoded,) = self.tokenizer.encode_words([words])
        return encoded

    def check_length(self, words: Sequence[str], place: str) -> None:
        """Raises if these words are more tokens than the encoder reads: none is dropped or cut off."""
        if self.longest is not None and (count := len(self.encode(words))) > self.longest:
            raise ValueError(
                f"{place} has {count:,} tokens of the encoder, which reads {self.longest:,}; split it into sentences"
            )

    def inputs(self, sentences: Sequence[Sequence[str]], dropped: NDArray[np.bool_] | None = None) -> SubwordInputs:
        """The tensors of sentences; `dropped` marks words, in their order, whose sub-words are masked."""
        encoded = self.tokenizer.encode_words(sentences)
        inputs = self.inputs_of([(each.ids, each.words) for each in encoded], sentences)
        if dropped is None:
            return inputs
        longest = inputs.firsts.shape[1]
        masked = np.zeros((len(sentences), longest + 1), np.bool_)
        masked[:, :longest][np.arange(longest) < inputs.lengths.numpy()[:, None]] = dropped
        is_masked = torch.from_numpy(np.take_along_axis(masked, inputs.word_ids.numpy(), 1))
        return inputs._replace(tokens=inputs.tokens.masked_fill(is_masked, self.tokenizer.dropped))

    def inputs_of(
        self, rows: Sequence[tuple[Sequence[int], Sequence[int | None]]], sentences: Sequence[Sequence[str]]
    ) -> SubwordInputs:
        """The tensors of sub-words, given by their ids and the numbers of their words, and of the words themselves."""
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        num_tokens = np.array([len(ids) for ids, _ in rows], np.int64)
        longest = int(lengths.max(initial=0))
        shape = (len(sentences), int(num_tokens.max(initial=0)))
        tokens, word_ids = np.full(shape, self.tokenizer.pad, np.int64), np.full(shape, longest, np.int64)
        firsts = np.zeros((len(sentences), longest), np.int64)
        for n, (ids, words) in enumerate(rows):
            tokens[n, : len(ids)] = ids
            word_ids[n, : len(ids)] = [longest if word is None else word for word in words]
            firsts[n, : lengths[n]] = first_places(words)
        spelled = self.words.inputs(sentences)
        arrays = map(torch.from_numpy, (tokens, num_tokens, word_ids, firsts, lengths))
        return SubwordInputs(*(*arrays, spelled.spellings, spelled.characters))
