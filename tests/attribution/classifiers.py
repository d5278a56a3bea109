"""Small classifiers with random weights, one per way to read tokens, and an input of each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import transformers
from tests.tasks.encoders import PIECES
from torch import nn

from regard.attribution import TransformersClassifier
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.layers.character_convolution import CharacterConvolution
from regard.models.bag_of_words import BagOfWords
from regard.models.bert import BERT
from regard.models.hierarchical import HierarchicalAttention
from regard.models.matching.decomposable import Decomposable
from regard.models.matching.encoded_pair import CoMatcher, EncodedPairModel, PairEncoder
from regard.models.matching.esim import ESIM
from regard.models.matching.word_matcher import BagOfPairs, WordMatcher
from regard.models.self_attentive import SelfAttentive
from regard.models.transfer.classifier import EncoderClassifier
from regard.models.transfer.text_encoder import TextEncoder
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.match.encoders import EncoderReader, JoinedReader
from regard.tasks.match.predictor import MatchPredictor
from regard.tasks.match.readers import FeatureReader, WordReader
from regard.tasks.shared.encoder import SMALLEST, PretrainedEncoder

CLASSES = ["good", "bad", "odd"]
TEXT = "a good film. It was long and good"
PAIR = "a good film was long\tit was bad"
WORDS = ["a", "good", "film", "it", "was", "long", "and", "bad"]


class Made(NamedTuple):
    """A predictor and an input of it."""

    predictor: Any
    given: str


def tokenizer() -> Tokenizer:
    return Tokenizer.train("words", [TEXT, "bad"], 40)


def spread(model: nn.Module) -> Any:
    """Weights that are large enough for the tokens of a random model to matter."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
    return model.eval()


def encoder(size: int, **choices: Any) -> BERT:
    return BERT(size, width=12, layers=2, heads=3, feed=10, longest=40, dropout=0.0, **choices)


def pretrained(source: RunSubwords) -> PretrainedEncoder:
    return PretrainedEncoder(replace(SMALLEST, vocabulary=source.size, width=12, longest=40), source)


def self_attentive(**choices: Any) -> Made:
    words = tokenizer()
    model = SelfAttentive(len(words), 3, width=5, hidden=6, hops=2, attention_hidden=7, feed=7, dropout=0.0, **choices)
    return Made(ClassifyTextPredictor(spread(model), words, CLASSES), TEXT)


def hierarchical() -> Made:
    words = tokenizer()
    model = HierarchicalAttention(len(words), 3, width=5, hidden=6, dropout=0.0)
    return Made(ClassifyTextPredictor(spread(model), words, CLASSES), TEXT)


def encoder_classifier(pooling: str) -> Made:
    subwords = RunSubwords(tokenizer())
    model = EncoderClassifier(TextEncoder(encoder(subwords.size)), 3, pooling=pooling, dropout=0.0)
    return Made(ClassifyTextPredictor(spread(model), subwords, CLASSES), TEXT)


def bag() -> Made:
    words = tokenizer()
    return Made(ClassifyTextPredictor(spread(BagOfWords(len(words), 3, bigrams=7)), words, CLASSES), TEXT)


def esim() -> Made:
    reader, characters = WordReader(WORDS, list("adfgilmnotw")), CharacterConvolution(SPECIAL + 11, width=3, filters=4)
    model = WordMatcher(ESIM(9, 3, hidden=6, dropout=0.0), nn.Embedding(SPECIAL + len(WORDS), 5), characters)
    return Made(MatchPredictor(spread(model), reader, CLASSES, max_length=40), PAIR)


def decomposable() -> Made:
    model = WordMatcher(Decomposable(5, 3, width=6, dropout=0.0), nn.Embedding(SPECIAL + len(WORDS), 5), None)
    return Made(MatchPredictor(spread(model), WordReader(WORDS, []), CLASSES, max_length=40), PAIR)


def joined_pair() -> Made:
    subwords = RunSubwords(tokenizer())
    model = PairEncoder(TextEncoder(encoder(subwords.size)), 3, dropout=0.0)
    return Made(MatchPredictor(spread(model), JoinedReader(pretrained(subwords)), CLASSES, max_length=40), PAIR)


def co_encoder() -> Made:
    subwords = RunSubwords(tokenizer())
    model = EncodedPairModel(TextEncoder(encoder(subwords.size)), CoMatcher(12, 3, width=5, dropout=0.0))
    both = pretrained(subwords)
    return Made(MatchPredictor(spread(model), EncoderReader(both, both), CLASSES, max_length=40), PAIR)


def bag_of_pairs() -> Made:
    reader = FeatureReader(WORDS, 11)
    return Made(MatchPredictor(spread(BagOfPairs(reader.size, 3)), reader, CLASSES, max_length=40), PAIR)


def transformers_bert() -> Made:
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
    config = transformers.BertConfig(vocab_size=len(PIECES), num_labels=3, max_position_embeddings=40, **sizes)
    config.id2label = dict(enumerate(CLASSES))
    model = spread(transformers.BertForSequenceClassification(config))
    return Made(
        TransformersClassifier(model, transformers.BertTokenizer(vocab={piece: n for n, piece in enumerate(PIECES)})),
        TEXT,
    )


# those of which every method explains the output
STACKS: dict[str, Callable[[], Made]] = {
    "encoder": lambda: encoder_classifier("first"),
    "encoder, mean": lambda: encoder_classifier("mean"),
    "joined pair": joined_pair,
    "transformers": transformers_bert,
}
EMBEDDED: dict[str, Callable[[], Made]] = {
    **STACKS,
    "self-attentive": self_attentive,
    "hierarchical": hierarchical,
    "esim": esim,
    "decomposable": decomposable,
    "co-encoder": co_encoder,
}
CLASSIFIERS: dict[str, Callable[[], Made]] = {**EMBEDDED, "bag": bag, "bag of pairs": bag_of_pairs}


def made(name: str) -> Made:
    torch.manual_seed(0)
    return CLASSIFIERS[name]()
