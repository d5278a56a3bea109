"""Small predictors with random weights, for every kind of model that is exported."""

from typing import Any

import torch

from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.models.bert import BERT, BERTMaskedLM
from regard.models.gpt2 import GPT2
from regard.models.transfer.classifier import EncoderClassifier
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.masked_lm.masked_texts import RunMaskedTexts
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies

LINES = [
    "the cat sat on the mat",
    "a dog runs in the snow",
    "she said: <eos> is no end",
    "two  spaces",
    "cats and dogs",
]
SIZES: dict[str, Any] = {"width": 8, "layers": 2, "heads": 2}


def tokenizer(kind: Any = "bpe") -> Tokenizer:
    return Tokenizer.train(kind, LINES, 280)


def randomize(model: Any, std: float = 0.4) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model.eval().requires_grad_(False)


def language_model(**options: Any) -> LanguageModelPredictor:
    tokens = tokenizer()
    return LanguageModelPredictor(randomize(GPT2(len(tokens), longest=64, **{**SIZES, **options})), tokens, longest=64)


def encoder(**options: Any) -> BERT:
    return BERT(len(tokenizer()) + 1, longest=64, types=1, **{**SIZES, **options})


def masked_lm() -> MaskedLMPredictor:
    return MaskedLMPredictor(randomize(BERTMaskedLM(encoder())), RunMaskedTexts(tokenizer()), longest=64)


def embedder(**options: Any) -> EmbedPredictor:
    return EmbedPredictor(
        randomize(TextEmbedder(TextEncoder(encoder()), **options)), RunSubwords(tokenizer()), longest=64
    )


def classifier(pooling: str = "mean") -> ClassifyTextPredictor:
    model = EncoderClassifier(TextEncoder(encoder()), 3, pooling=pooling)
    return ClassifyTextPredictor(randomize(model), RunSubwords(tokenizer()), ["x", "y", "z"], max_length=64)


def translator(kind: Any = "characters", target_size: int = 280, **options: Any) -> Translator:
    source = tokenizer(kind)
    target = source if target_size == 280 else Tokenizer.train(kind, LINES, target_size)
    model = Transformer(len(source), len(target), **{"tied": "none", **SIZES, **options})
    return Translator(randomize(model), Vocabularies(source, target))
