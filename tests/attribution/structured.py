"""Small taggers and translators with random weights, an input of each, and a target in its output."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from tests.attribution.classifiers import encoder, spread

from regard.common.tag_schemes import TagScheme
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subword_inputs import SubwordEncoder
from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.inference.structured_predictor import StructuredPredictor
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.seq2seq import Seq2Seq
from regard.models.tagger import RecurrentTagger, Tagger, TaggerSizes, TransformerTagger
from regard.models.transfer.tagger import EncoderTagger
from regard.models.transfer.text_encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.tasks.tag.data import TagVocabulary
from regard.tasks.tag.options import Tag
from regard.tasks.tag.predictor import TagPredictor
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies

TAGS = ["O", "B-city", "I-city"]
WORDS = ["fly", "to", "new", "york", "and", "rome"]
SENTENCE = "fly to New York and to Rome"
LINES = ["a b c", "d e a", "b d"]


class Structured(NamedTuple):
    """A predictor, a text, and the name of a part of the output."""

    predictor: StructuredPredictor
    text: str
    target: str


def _tagger(model: Tagger, made_encoder: SubwordEncoder | None = None) -> Structured:
    vocabulary = TagVocabulary(
        train=1,
        valid=1,
        train_sha256="",
        valid_sha256="",
        scheme="IOB2",
        tags=TAGS,
        intents=[],
        words=WORDS,
        characters=[],
    )
    predictor = TagPredictor(spread(model), vocabulary, Tag.of(data="fields"), made_encoder)
    return Structured(predictor, SENTENCE, "New York=city")


SIZES = TaggerSizes(SPECIAL + len(WORDS), SPECIAL, len(TAGS))


def recurrent_tagger() -> Structured:
    scheme = TagScheme("IOB2", TAGS)
    sizes = {"embedding": 6, "characters": 2, "hidden": 8, "dropout": 0.0}
    return _tagger(RecurrentTagger(SIZES, scheme=scheme, **sizes))


def transformer_tagger() -> Structured:
    sizes = {"embedding": 6, "characters": 2, "width": 8, "heads": 2, "feed": 10, "dropout": 0.0}
    return _tagger(TransformerTagger(SIZES, output="softmax", **sizes))


def encoder_tagger() -> Structured:
    subwords = RunSubwords(Tokenizer.train("bpe", [SENTENCE], 264))
    text_encoder = TextEncoder(encoder(subwords.size))
    model = EncoderTagger(text_encoder, SIZES, characters=0, scheme=TagScheme("IOB2", TAGS), dropout=0.0)
    return _tagger(model, SubwordEncoder(subwords, None))


def _translator(make: Callable[[int], EncoderDecoder]) -> Structured:
    words = Tokenizer.train("words", LINES, 20)
    torch.manual_seed(7)
    translator = Translator(spread(make(len(words))), Vocabularies(words, words))
    ((best, *_),) = translator.translate([LINES[0]])
    return Structured(translator, LINES[0], best.text.split()[0])


def recurrent_translator() -> Structured:
    return _translator(lambda n: Seq2Seq(n, n, width=6, hidden=8, dropout=0.0))


def transformer_translator() -> Structured:
    return _translator(lambda n: Transformer(n, n, width=8, layers=2, heads=2, dropout=0.0, tied="all"))


STRUCTURED: dict[str, Callable[[], Structured]] = {
    "recurrent tagger": recurrent_tagger,
    "transformer tagger": transformer_tagger,
    "encoder tagger": encoder_tagger,
    "recurrent translator": recurrent_translator,
    "transformer translator": transformer_translator,
}


def made_structured(name: str) -> Structured:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return STRUCTURED[name]()
