"""The parts of every model of the task match: its reader, and the way to build it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from regard.common.options.construct import construct
from regard.data.text.special_tokens import PAD, SPECIAL
from regard.layers.character_convolution import CharacterConvolution
from regard.models.matching.encoded_pair import CoMatcher, EncodedPairModel
from regard.models.matching.word_matcher import PairModel, WordMatcher
from regard.tasks.match.data import PairFacts
from regard.tasks.match.encoders import EncoderReader, EncoderSource, JoinedReader
from regard.tasks.match.options import (
    SECOND,
    BagOfPairsOptions,
    CoEncoderOptions,
    MatcherOptions,
    PairEncoderOptions,
    PairModelOptions,
)
from regard.tasks.match.readers import FeatureReader, PairReader, WordReader
from regard.tasks.shared.encoder_options import FrozenEncoderOptions


class PairParts(NamedTuple):
    """The parts of a model that its options and data decide."""

    reader: PairReader[Any]
    build: Callable[[], PairModel]
    # the widths of the states of first and second texts, if they never change, so that they are computed once
    frozen: tuple[int, int] | None = None


def model_parts(options: PairModelOptions, facts: PairFacts, source: EncoderSource) -> PairParts:
    """The reader of the model's tokens, and the model; `source` reads pretrained encoders."""
    classes = len(facts.classes)
    if isinstance(options, BagOfPairsOptions):
        features = FeatureReader(facts.words, options.buckets)
        return PairParts(features, lambda: options.build(features.size, classes))
    if isinstance(options, PairEncoderOptions):
        encoder = source(options, "")
        return PairParts(JoinedReader(encoder), lambda: options.build(encoder.build(options), classes))
    if isinstance(options, CoEncoderOptions):
        return _co_parts(options, classes, source)
    assert isinstance(options, MatcherOptions)
    return _word_parts(options, facts) if options.encoder is None else _frozen_parts(options, classes, source)


def _word_parts(options: MatcherOptions, facts: PairFacts) -> PairParts:
    """Trained vectors of words and characters."""
    width, filters = options.embedding or 0, options.characters or 0

    def build() -> PairModel:
        matcher = options.build(width + filters, len(facts.classes))
        words = nn.Embedding(SPECIAL + len(facts.words), width, padding_idx=PAD)
        sizes = SPECIAL + len(facts.characters)
        characters = CharacterConvolution(sizes, filters=filters, padding=PAD) if filters else None
        return WordMatcher(matcher, words, characters)

    return PairParts(WordReader(facts.words, facts.characters), build)


def _frozen_parts(options: MatcherOptions, classes: int, source: EncoderSource) -> PairParts:
    """The states of a frozen encoder as vectors."""
    assert options.encoder is not None
    frozen = FrozenEncoderOptions(options.encoder, levels=options.levels)
    encoder = source(frozen, "")
    width = encoder.facts.width * max(len(options.levels), 1)

    def build() -> PairModel:
        matcher = options.build(width, classes)
        return EncodedPairModel(encoder.build(frozen), matcher, layer_decay=1.0, head_rate=1.0)

    return PairParts(EncoderReader(encoder, encoder), build, (width, width))


def _co_parts(options: CoEncoderOptions, classes: int, source: EncoderSource) -> PairParts:
    """One encoder per text, or the same for both."""
    second = None
    if options.second_encoder is not None:
        second = source(replace(options, encoder=options.second_encoder), SECOND)
    encoder = source(options, "")
    other = encoder if second is None else second
    levels = max(len(options.levels), 1)
    width, second_width = encoder.facts.width * levels, other.facts.width * levels

    def build() -> PairModel:
        second_dim = None if second is None else second_width
        matcher = construct(CoMatcher, options, width, classes, second_dim=second_dim)
        second_encoder = None if second is None else second.build(options)
        return options.build(encoder.build(options), matcher, second=second_encoder)

    frozen = (width, second_width) if options.freeze == "all" else None
    return PairParts(EncoderReader(encoder, other), build, frozen)
