"""Small predictors of every kind of model that a run may hold, and texts for them."""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from pydoc_data.topics import topics
from typing import Any

import torch

from benchmarks.export.answers import GENERATED
from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Kind, Tokenizer
from regard.decoding.search import as_in_generate
from regard.inference.predictor import Predictor
from regard.models.bert import BERT, BERTClassifier, BERTMaskedLM
from regard.models.conv.seq2seq import ConvSeq2Seq
from regard.models.decoders.llama import Llama
from regard.models.gpt2 import GPT2
from regard.models.recurrent_language_model import RecurrentLanguageModel
from regard.models.self_attentive import SelfAttentive
from regard.models.seq2seq import Seq2Seq
from regard.models.transfer.classifier import EncoderClassifier, ReleasedClassifier
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.masked_lm.masked_texts import MASK, RunMaskedTexts
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies

SEED = 0
LONGEST = 96  # tokens of an encoder and of a language model
LIMIT = 24  # tokens of a translation
SIZES: dict[str, Any] = {"width": 32, "layers": 2, "heads": 4}
# texts that a tokenizer could read wrongly
_AWKWARD = ("two  spaces", "she said: <eos> is no end", "Überfluß an Ähren", "日本語", " begins with a space", "x")


@cache
def manual_lines() -> list[str]:
    """The lines of the Python manual."""
    lines = (line.strip() for name in sorted(topics) for line in topics[name].splitlines())
    return [line for line in lines if len(line) > 20]


def texts(count: int, seed: int = SEED, words: int = 12) -> list[str]:
    """Parts of lines with one to `words` words, all different, and a few awkward texts."""
    draw, found = random.Random(seed), dict.fromkeys(_AWKWARD[: count // 2])
    while len(found) < count:
        line = draw.choice(manual_lines()).split()
        first = draw.randrange(len(line))
        found[" ".join(line[first : first + draw.randint(1, words)])] = None
    return list(found)


def masked_texts(count: int) -> list[str]:
    """Texts of which one or two words are masked."""
    draw, found = random.Random(SEED), []
    for text in texts(count):
        words = text.split(" ")
        for place in {draw.randrange(len(words)) for _ in range(2)}:
            words[place] = MASK
        found.append(" ".join(words))
    return found


@cache
def _tokenizer(kind: Kind = "bpe", size: int = 300, first: int = 0) -> Tokenizer:
    return Tokenizer.train(kind, manual_lines()[first : first + 400], size)


def _random(model: Any, std: float = 0.25) -> Any:
    """With weights, biases and norms that are far from their start, so that a lost one is missed."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm.weight" in name else 0.0
            parameter.copy_(mean + std * torch.randn(parameter.shape))
    return model.eval().requires_grad_(False)


def train(translator: Translator, steps: int, batch: int = 32) -> Translator:
    """Copies texts for some steps of Adam: translations of random weights repeat one token."""
    lines = texts(steps * batch, SEED + 1, 6)
    optimizer = torch.optim.Adam(translator.model.parameters(), lr=5e-3)
    for step in range(steps):
        some = lines[step * batch : (step + 1) * batch]
        optimizer.zero_grad()
        translator.loss(some, some).mean().backward()
        optimizer.step()
    translator.model.eval().requires_grad_(False)
    return translator


def _translator(model: Any, source: Tokenizer, target: Tokenizer) -> Translator:
    vocabularies = Vocabularies(source, target)
    return Translator(model, vocabularies, stretch=None, most=LIMIT, search_rule=as_in_generate)


def transformer(source: Tokenizer, target: Tokenizer, **options: Any) -> Translator:
    torch.manual_seed(SEED)
    sizes = {**SIZES, "dropout": 0.0, "tied": "all" if source is target else "target", **options}
    return _translator(Transformer(len(source), len(target), **sizes), source, target)


def _encoder(**options: Any) -> BERT:
    return BERT(len(_tokenizer()) + 1, longest=LONGEST, types=1, **{**SIZES, **options})


def _embedder(**options: Any) -> EmbedPredictor:
    model = _random(TextEmbedder(TextEncoder(_encoder()), **options))
    return EmbedPredictor(model, RunSubwords(_tokenizer()), longest=LONGEST)


def _classifier(model: Any) -> ClassifyTextPredictor:
    return ClassifyTextPredictor(_random(model), RunSubwords(_tokenizer()), list("xyz"), max_length=LONGEST)


def _language_model(model: Any) -> LanguageModelPredictor:
    return LanguageModelPredictor(_random(model, 0.4), _tokenizer(), longest=LONGEST)


def _own() -> tuple[Tokenizer, Tokenizer]:
    """Vocabularies of different sizes for source and target."""
    return _tokenizer("bpe", 300), _tokenizer("bpe", 320, 400)


def _shared() -> tuple[Tokenizer, Tokenizer]:
    return (_tokenizer("characters"),) * 2


def _words() -> tuple[Tokenizer, Tokenizer]:
    return (_tokenizer("words", 400),) * 2


# translators, which are trained before they are compared
TRANSLATORS: dict[str, Callable[[], Translator]] = {
    "Transformer, pre-norm, sinusoids": lambda: transformer(*_own()),
    "Transformer, pre-norm, learned positions": lambda: transformer(*_words(), positions="learned", longest=LONGEST),
    "Transformer, post-norm, sinusoids": lambda: transformer(*_shared(), norm="post"),
    "Transformer, post-norm, learned positions": lambda: transformer(
        *_own(), norm="post", positions="learned", longest=LONGEST
    ),
}
OTHERS: dict[str, Callable[[], Predictor[Any, Any]]] = {
    "Transformer, rotary positions": lambda: transformer(*_own(), positions="rotary"),
    "recurrent translator": lambda: _translator(Seq2Seq(*map(len, _own())), *_own()),
    "convolutional translator": lambda: _translator(ConvSeq2Seq(*map(len, _own())), *_own()),
    "GPT-2, learned positions": lambda: _language_model(GPT2(len(_tokenizer()), longest=LONGEST, **SIZES)),
    "GPT-2, sinusoids": lambda: _language_model(
        GPT2(len(_tokenizer()), longest=LONGEST, positions="sinusoidal", **SIZES)
    ),
    "recurrent language model": lambda: _language_model(RecurrentLanguageModel(len(_tokenizer()), width=32)),
    "Llama": lambda: _language_model(Llama(len(_tokenizer()), **SIZES)),
    "masked language model": lambda: MaskedLMPredictor(
        _random(BERTMaskedLM(_encoder())), RunMaskedTexts(_tokenizer()), longest=LONGEST
    ),
    "encoder, mean": _embedder,
    "encoder, first token": lambda: _embedder(pooling="first", normalize=False),
    "encoder, maximum": lambda: _embedder(pooling="max"),
    "classifier with an encoder": lambda: _classifier(EncoderClassifier(TextEncoder(_encoder()), 3)),
    "classifier of BERT": lambda: _classifier(ReleasedClassifier(BERTClassifier(_encoder(pooler=True), 3))),
    "self-attentive classifier": lambda: _classifier(SelfAttentive(len(_tokenizer()), 3)),
}
KINDS: Sequence[str] = (*TRANSLATORS, *OTHERS)


def predictor(kind: str, steps: int) -> Predictor[Any, Any]:
    """The predictor of a kind; a translator copies texts for some steps first."""
    return train(TRANSLATORS[kind](), steps) if kind in TRANSLATORS else OTHERS[kind]()


def inputs(given: Predictor[Any, Any], count: int) -> list[str]:
    """Texts that a model has positions for, masked if it reads masks."""
    drawn = (masked_texts if isinstance(given, MaskedLMPredictor) else texts)(4 * count)
    parts = given.exportable()
    room = math.inf if parts.longest is None else parts.longest
    if isinstance(given, LanguageModelPredictor):
        room -= GENERATED
    library = parts.vocabulary.library
    if library is None:
        assert isinstance(given, Translator)
        return [text for text in drawn if given.can_read(text)][:count]
    return [text for text in drawn if len(library.encode(text).ids) <= room][:count]
