"""Answer: the tokens that a model reads and writes for one text, and its scores; `own_answers` are those of regard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decoding.search import Beam, Greedy
from regard.inference.predictor import Predictor
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.language_model.options import GenerateText
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.translate.predictor import Translator

BEAM = 4
GENERATED = 16  # tokens behind a prompt


@dataclass(frozen=True, eq=False)
class Answer:
    """Tokens of the input; of each output; and numbers that must agree."""

    read: tuple[int, ...]
    written: tuple[tuple[int, ...], ...]
    scores: Tensor  # "n"


def own_answers(predictor: Predictor[Any, Any], texts: Sequence[str]) -> list[Answer]:
    """The answers of regard, in its own batches."""
    for kind, answer in _FAMILIES.items():
        if isinstance(predictor, kind):
            with torch.inference_mode():
                return answer(predictor, texts)
    raise TypeError(f"{type(predictor).__name__} has no answers to compare")


def _translations(predictor: Translator, texts: Sequence[str]) -> list[Answer]:
    """Greedy search and a beam, each with its log p."""
    found = [predictor.translate(texts, search) for search in (Greedy(), Beam(BEAM))]
    read = predictor.vocabularies.source.encode(texts)
    eos = predictor.vocabularies.source.special.eos
    return [
        Answer(
            (*ids, eos),
            tuple(tuple(several[0].with_eos) for several in both),
            torch.tensor([several[0].log_prob for several in both]),
        )
        for ids, *both in zip(read, *found, strict=True)
    ]


def _continuations(predictor: LanguageModelPredictor, texts: Sequence[str]) -> list[Answer]:
    """The likeliest tokens and their log p, and the log p of the prompt."""
    outputs = predictor.predict(texts, GenerateText(tokens=GENERATED, temperature=0))
    answers = []
    for output in outputs:
        ids, best = output.encoded.tokens, output.continuations[0]
        written = (*best.tokens, predictor.tokenizer.special.eos) if best.finished else best.tokens
        log_p = token_log_probs(predictor.model(torch.tensor([ids]))[0], ids)
        answers.append(Answer(ids, (written,), torch.tensor([best.log_prob, log_p])))
    return answers


def token_log_probs(logits: Tensor, ids: Sequence[int]) -> float:  # "t v"
    """Σ log p of every token behind the first."""
    log_p = logits[: len(ids) - 1].log_softmax(-1)
    return float(log_p.gather(1, torch.tensor(ids[1:], dtype=torch.long)[:, None]).sum())


def _vectors(predictor: EmbedPredictor, texts: Sequence[str]) -> list[Answer]:
    encoded = predictor.encode(texts)
    return [Answer(tuple(text.ids), (), vector) for text, vector in zip(encoded, predictor.vectors(texts), strict=True)]


def _classes(predictor: ClassifyTextPredictor, texts: Sequence[str]) -> list[Answer]:
    encoded = predictor.encode_tokens(texts)
    rows = predictor.token_logits(encoded)
    return [Answer(tuple(text.ids), ((int(row.argmax()),),), row) for text, row in zip(encoded, rows, strict=True)]


def _masks(predictor: MaskedLMPredictor, texts: Sequence[str]) -> list[Answer]:
    answers = []
    for text in texts:
        encoded = predictor.encode(text)
        logits = predictor.model(torch.tensor([encoded.tokens]))[0, list(encoded.places)]
        answers.append(mask_answer(encoded.tokens, logits))
    return answers


def mask_answer(read: Sequence[int], logits: Tensor) -> Answer:  # "m v"
    return Answer(tuple(read), (tuple(logits.argmax(-1).tolist()),), logits.log_softmax(-1).flatten())


_FAMILIES: dict[type, Callable[[Any, Sequence[str]], list[Answer]]] = {
    Translator: _translations,
    LanguageModelPredictor: _continuations,
    EmbedPredictor: _vectors,
    ClassifyTextPredictor: _classes,
    MaskedLMPredictor: _masks,
}
