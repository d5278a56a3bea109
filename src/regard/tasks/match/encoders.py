"""Pretrained encoders in the task match: their readers, and the states of texts that a frozen encoder computes once."""

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.common.wording import shortened
from regard.data.text.subwords import EncodedText, SubwordTokenizer
from regard.inference.embedded_classifier import TokenInput
from regard.inference.token_places import TokenPlace, VocabularyTexts, token_places
from regard.models.matching.encoded_pair import EncodedPairModel, JoinedTexts, TokenizedPairs, VectorPairs
from regard.models.matching.word_matcher import PairModel
from regard.tasks.match.readers import PairReader
from regard.tasks.shared.encoder import MOST_BYTES, FrozenStates, PretrainedEncoder, pad_texts, smallest_pretrained
from regard.tasks.shared.encoder_options import EncoderOptions
from regard.tasks.shared.pretrained_part import levels_of
from regard.training.run_folder import LAST

# layers of an encoder in a first call, at most
_MOST_LAYERS = 64

# the encoder of options: of the first texts, or by the name of its folder in the run of the second ones
EncoderSource = Callable[[EncoderOptions, str], PretrainedEncoder]


def training_source(folder: Path, new: bool) -> EncoderSource:
    """Encoders of a training: a new run reads the folders that its options name, others what the run has written."""

    def source(options: EncoderOptions, name: str) -> PretrainedEncoder:
        place = folder / name
        if name and not new and place.exists() and (folder / LAST).exists():
            return PretrainedEncoder.of_run(place)
        place.mkdir(exist_ok=True)
        return PretrainedEncoder.prepare(options, place, new)

    return source


def run_source(folder: Path) -> EncoderSource:
    """Encoders of a run, whose weights are in its checkpoints."""
    return lambda options, name: PretrainedEncoder.of_run(folder / name)


def smallest_source(options: EncoderOptions, name: str) -> PretrainedEncoder:
    """An encoder for a first call of a model, before anything is read, with as many layers as are frozen."""
    layers = int(options.freeze) if options.freeze.isdigit() else max(levels_of(options), default=1)
    return smallest_pretrained(min(max(layers, 1), _MOST_LAYERS))


def _whole(encoded: EncodedText, text: str, longest: int | None) -> EncodedText:
    if encoded.num_cut:
        raise ValueError(
            f"the text {shortened(text, 30)} has {encoded.num_cut:,} tokens more than the {longest:,} that the encoder "
            "reads; shorten it"
        )
    return encoded


class EncodedPair(NamedTuple):
    """The tokens of both texts."""

    first: EncodedText
    second: EncodedText


def token_input(texts: Sequence[EncodedText], names: Sequence[str]) -> TokenInput:
    """The tokens of encoded texts, one text behind the other."""
    ids, types, owners = (
        tuple(chain.from_iterable(getattr(text, field) for text in texts)) for field in ("ids", "types", "texts")
    )
    return TokenInput(tuple(names), ids, tuple(owner is None for owner in owners), tuple(map(len, texts)), types)


def encoded_text(ids: Sequence[int], types: Sequence[int]) -> EncodedText:
    """Tokens as an encoder reads them, without their places in a text."""
    return EncodedText(tuple(ids), tuple(types), (None,) * len(ids), (None,) * len(ids), ((0, 0),) * len(ids))


class EncoderReader(PairReader[EncodedPair]):
    """The sub-words of an encoder for each text, of two encoders if the texts have different ones."""

    def __init__(self, first: PretrainedEncoder, second: PretrainedEncoder) -> None:
        self.encoders = first, second

    @property
    def paddings(self) -> tuple[int | None, ...]:
        return tuple(encoder.tokenizer.pad for encoder in self.encoders)

    def tokenize(self, first: Sequence[str], second: Sequence[str]) -> list[EncodedPair]:
        sides = [
            [
                _whole(encoded, text, encoder.longest)
                for encoded, text in zip(encoder.tokenizer.encode(texts, encoder.longest), texts, strict=True)
            ]
            for encoder, texts in zip(self.encoders, (first, second), strict=True)
        ]
        return [EncodedPair(*pair) for pair in zip(*sides, strict=True)]

    def lengths(self, tokens: EncodedPair) -> tuple[int, int]:
        return len(tokens.first), len(tokens.second)

    def inputs(
        self, pairs: Sequence[EncodedPair], dropout: float = 0.0, rng: np.random.Generator | None = None
    ) -> TokenizedPairs:
        padded = [
            pad_texts([pair[side] for pair in pairs], encoder.tokenizer.pad)
            for side, encoder in enumerate(self.encoders)
        ]
        return TokenizedPairs(padded[0].tokens, padded[1].tokens, padded[0].lengths, padded[1].lengths)

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts.of_tokenizer(self.encoders[0].tokenizer)

    def token_places(self, first: str, second: str) -> list[list[TokenPlace]]:
        encoder, other = self.encoders
        return token_places(encoder.tokenizer, [first, second] if encoder is other else [first])

    def names(self, tokens: EncodedPair) -> tuple[Sequence[str], Sequence[str]]:
        first, second = (
            encoder.tokenizer.pieces(text.ids) for encoder, text in zip(self.encoders, tokens, strict=True)
        )
        return first, second

    def token_input(self, first: str, second: str) -> TokenInput:
        (pair,) = self.tokenize([first], [second])
        names = [name for part in self.names(pair) for name in part]
        return token_input(pair, names)

    def from_tokens(self, tokens: TokenInput) -> EncodedPair:
        first, second = (
            encoded_text(ids, types)
            for ids, types in zip(tokens.parts(tokens.ids), tokens.parts(tokens.types), strict=True)
        )
        return EncodedPair(first, second)

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[list[tuple[int, int, int]]]:
        return [
            [(side, n, column) for side, size in enumerate(each.sizes) for column in range(size)]
            for n, each in enumerate(tokens)
        ]


class JoinedReader(PairReader[EncodedText]):
    """Both texts as one row of sub-words."""

    def __init__(self, encoder: PretrainedEncoder) -> None:
        self.encoder = encoder

    @property
    def tokenizer(self) -> SubwordTokenizer:
        return self.encoder.tokenizer

    @property
    def paddings(self) -> tuple[int | None, ...]:
        return (self.tokenizer.pad,)

    def tokenize(self, first: Sequence[str], second: Sequence[str]) -> list[EncodedText]:
        pairs = list(zip(first, second, strict=True))
        encoded = self.tokenizer.encode_pairs(pairs, self.encoder.longest)
        return [_whole(each, " ".join(pair), self.encoder.longest) for each, pair in zip(encoded, pairs, strict=True)]

    def lengths(self, tokens: EncodedText) -> tuple[int, int]:
        return len(tokens), len(tokens)

    def inputs(
        self, pairs: Sequence[EncodedText], dropout: float = 0.0, rng: np.random.Generator | None = None
    ) -> JoinedTexts:
        return JoinedTexts(*pad_texts(pairs, self.tokenizer.pad))

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts.of_tokenizer(self.tokenizer)

    def token_places(self, first: str, second: str) -> list[list[TokenPlace]]:
        return token_places(self.tokenizer, [first, second])

    def names(self, tokens: EncodedText) -> tuple[Sequence[str], Sequence[str]]:
        return self.tokenizer.pieces(tokens.ids), ()

    def token_input(self, first: str, second: str) -> TokenInput:
        (joined,) = self.tokenize([first], [second])
        return token_input([joined], self.tokenizer.pieces(joined.ids))

    def from_tokens(self, tokens: TokenInput) -> EncodedText:
        return encoded_text(tokens.ids, tokens.types)

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[list[tuple[int, int, int]]]:
        return [[(0, n, column) for column in range(len(each))] for n, each in enumerate(tokens)]


class FrozenVectors:
    """The states of the texts of a run by frozen encoders, each computed once."""

    def __init__(self, reader: EncoderReader, pairs: Sequence[EncodedPair], widths: tuple[int, int]) -> None:
        first, second = reader.encoders
        texts = [[pair[side].ids for pair in pairs] for side in range(2)]
        if first is second:
            shared = FrozenStates((*texts[0], *texts[1]), first.tokenizer.pad)
            self.sides = [shared, shared]
        else:
            self.sides = [FrozenStates(texts[n], each.tokenizer.pad) for n, each in enumerate(reader.encoders)]
        distinct = {id(side): side.num_tokens * width for side, width in zip(self.sides, widths, strict=True)}
        self.fits = 4 * sum(distinct.values()) <= MOST_BYTES

    def pairs(self, model: PairModel, inputs: TokenizedPairs) -> VectorPairs:
        """The states of these pairs."""
        assert isinstance(model, EncodedPairModel)
        first, second = model.encoders
        return VectorPairs(
            self.sides[0].read(first, inputs.first, inputs.first_lengths),
            self.sides[1].read(second, inputs.second, inputs.second_lengths),
            inputs.first_lengths,
            inputs.second_lengths,
        )
