"""The parts of every model of the task match: its reader, and the way to build it."""

from torch import nn

from regard.common.options.construct import construct
from regard.data.text.special_tokens import PAD, SPECIAL
from regard.layers.character_convolution import CharacterConvolution
from regard.models.matching.encoded_pair import CoMatcher, EncodedPairModel
from regard.models.matching.word_matcher import PairModel, WordMatcher
from regard.tasks.match.data import PairFacts
from regard.tasks.match.encoders import EncoderReader, JoinedReader, PairParts
from regard.tasks.match.options import (
    BagOfPairsOptions,
    CoEncoderOptions,
    MatcherOptions,
    PairEncoderOptions,
)
from regard.tasks.match.readers import FeatureReader, WordReader
from regard.tasks.shared.encoder import PretrainedEncoder


def word_parts(options: MatcherOptions, facts: PairFacts) -> PairParts:
    """Trained vectors of words and characters."""
    width, filters = options.embedding or 0, options.characters or 0

    def build() -> PairModel:
        matcher = options.build(width + filters, len(facts.classes))
        words = nn.Embedding(SPECIAL + len(facts.words), width, padding_idx=PAD)
        sizes = SPECIAL + len(facts.characters)
        characters = CharacterConvolution(sizes, filters=filters, padding=PAD) if filters else None
        return WordMatcher(matcher, words, characters)

    return PairParts(WordReader(facts.words, facts.characters), build)


def frozen_parts(options: MatcherOptions, facts: PairFacts, encoder: PretrainedEncoder) -> PairParts:
    """The states of a frozen encoder as vectors."""
    of_encoder = options.frozen_encoder
    width = encoder.facts.width * max(len(of_encoder.levels), 1)

    def build() -> PairModel:
        matcher = options.build(width, len(facts.classes))
        return EncodedPairModel(encoder.build(of_encoder), matcher, layer_decay=1.0, head_rate=1.0)

    return PairParts(EncoderReader(encoder, encoder), build, (width, width))


def joined_parts(options: PairEncoderOptions, facts: PairFacts, encoder: PretrainedEncoder) -> PairParts:
    """An encoder that reads both texts as one."""

    return PairParts(JoinedReader(encoder), lambda: options.build(encoder.build(options), len(facts.classes)))


def co_parts(
    options: CoEncoderOptions, facts: PairFacts, encoder: PretrainedEncoder, second: PretrainedEncoder | None
) -> PairParts:
    """One encoder per text; without `second` the same for both."""
    other = encoder if second is None else second
    levels = max(len(options.levels), 1)
    width, second_width = encoder.facts.width * levels, other.facts.width * levels

    def build() -> PairModel:
        second_dim = None if second is None else second_width
        matcher = construct(CoMatcher, options, width, len(facts.classes), second_dim=second_dim)
        second_encoder = None if second is None else second.build(options)
        return options.build(encoder.build(options), matcher, second=second_encoder)

    frozen = (width, second_width) if options.freeze == "all" else None
    return PairParts(EncoderReader(encoder, other), build, frozen)


def feature_parts(options: BagOfPairsOptions, facts: PairFacts) -> PairParts:
    """The features of a bag of words."""
    reader = FeatureReader(facts.words, options.buckets)
    return PairParts(reader, lambda: options.build(reader.size, len(facts.classes)))
