"""Translating: a Translate run behind the service, text in, translations and what they looked at out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from regard.data.text.special_tokens import UNK
from regard.decoding.search import Beam, Greedy, Search
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, limited
from regard.serve.http.text_body import TextBody
from regard.tasks.translate.model import places
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import AlignedTranslation, TranslationHypothesis, Translator
from regard.viz.text import labels

# hypotheses kept where a request does not say how many
_BEAM = 5


class TranslateBody(TextBody):
    """The body of POST /v1/translate."""

    example: ClassVar[dict[str, Any]] = {"text": "en: May 5, 2017", "beam": 5, "nbest": 1, "alignment": True}

    beam: Annotated[
        int,
        Field(
            default=_BEAM,
            ge=1,
            description="Hypotheses kept at every step; 1 takes the likeliest token each time.",
        ),
    ]
    nbest: Annotated[int, Field(default=1, ge=1, description="Translations per text, the best first; at most beam.")]
    alignment: Annotated[
        bool, Field(default=False, description="Whether to give the attention of each token of a translation.")
    ]


class AlignmentAnswer(AnswerModel):
    """weights[i][j] is the attention of target token i to source token j. The last tokens are the ends of the
    sentences; a character that cannot be seen is shown by a sign: a blank is ␣."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]


class TranslationAnswer(AnswerModel):
    """One translation of a text."""

    text: str
    score: Annotated[float, Field(description="Translations are ranked by it.")]
    log_prob: Annotated[float, Field(description="The natural logarithm of its probability.")]
    finished: Annotated[bool, Field(description="Whether it ended within the limit of tokens.")]
    alignment: Annotated[AlignmentAnswer, Field(default=None, description="If the request asks for it.")]


class TranslationsAnswer(AnswerModel):
    """The translations of one text."""

    source: str
    unknown: Annotated[int, Field(description="Tokens that are not in the vocabulary.")]
    translations: Annotated[list[TranslationAnswer], Field(description="The best first.")]


class TranslateAnswer(AnswerModel):
    """The answer of POST /v1/translate."""

    answers: Annotated[list[TranslationsAnswer], Field(description="One per text, in their order.")]


@dataclass(frozen=True)
class TranslateRequest:
    """Texts to translate, and how."""

    texts: tuple[str, ...]
    search: Search
    alignment: bool

    @property
    def count(self) -> int:
        return len(self.texts)


class TranslateEndpoint:
    """Answers of `Translator.translate`, many requests at a time; `run` is what the model is called."""

    name = "translate"
    counted = "sentences"
    unpack = None

    def __init__(self, task: Translate, interpreter: Translator, limits: Limits, *, run: str, step: int) -> None:
        self.task, self.interpreter, self.limits, self.run, self.step = task, interpreter, limits, run, step
        self.attends = task.decoder != "fixed"
        self.tokens = limits.tokens or task.max_length
        if task.positions == "learned" and self.tokens >= places(task):
            raise ValueError(
                f"tokens={self.tokens} is more than the {places(task) - 1} places that this model learned; "
                f"try tokens={task.max_length}"
            )

    @property
    def face(self) -> PageSpec:
        limits = {"characters": self.limits.characters, "texts": self.limits.texts, "pictures": self.limits.pictures}
        empty = {"title": "", "note": "", "text": ["", ""], "source": [], "target": [], "weights": ""}
        data = {
            "task": self.name,
            "run": self.run,
            "attends": self.attends,
            "beam": self.limits.beam,
            "limits": limits,
            "shown": {},
        }
        return PageSpec(
            f"Translate with {self.run}", "alignment/page", "translation_form", {**data, "alignments": [empty]}
        )

    @property
    def schema(self) -> Schema:
        most = self.limits.beam
        body = limited(
            TranslateBody,
            texts=Field(max_length=self.limits.texts),
            beam=Field(default=min(_BEAM, most), le=most),
            nbest=Field(le=most),
        )
        return Schema("Translate one text or several", body, TranslateAnswer)

    def about(self) -> dict[str, object]:
        limits, vocabularies = self.limits, self.interpreter.vocabularies
        return {
            "task": self.name,
            "run": self.run,
            "step": self.step,
            "model": self.task.model,
            "attends": self.attends,
            "parameters": sum(p.numel() for p in self.interpreter.model.parameters()),
            "vocabulary": {"source": len(vocabularies.source), "target": len(vocabularies.target)},
            "limits": {
                "texts": limits.texts,
                "characters": limits.characters,
                "tokens": self.tokens,
                "beam": limits.beam,
                "pictures": limits.pictures,
                "body": limits.body,
                "seconds": limits.seconds,
            },
        }

    def read(self, body: TranslateBody) -> TranslateRequest:
        texts = self._texts(body)
        beam, nbest = body.beam, body.nbest
        if nbest > beam:
            raise RequestError(422, f"nbest={nbest} wants more than beam={beam} finds; raise beam")
        if body.alignment and not self.attends:
            raise RequestError(422, "alignment needs attention, and this model has none (decoder fixed); leave it out")
        if body.alignment and len(texts) * nbest > self.limits.pictures:
            raise RequestError(
                422,
                f"alignment is given for at most {self.limits.pictures} translations a request, "
                f"got {len(texts)} texts with nbest={nbest}; ask for fewer, or leave alignment out",
            )
        return TranslateRequest(texts, Greedy() if beam == 1 else Beam(beam, nbest), body.alignment)

    def _texts(self, body: TranslateBody) -> tuple[str, ...]:
        named = body.checked(self.limits)
        texts = [text for _, text in named]
        encoded = self.interpreter.vocabularies.source.encode(texts)
        for (where, _), ids in zip(named, encoded, strict=True):
            if len(ids) > self.tokens:
                raise RequestError(
                    422, f"{where} must have at most {self.tokens} tokens, got {len(ids)}; ask sentence by sentence"
                )
        return tuple(texts)

    def answer(self, asked: Sequence[TranslateRequest]) -> list[dict[str, object]]:
        said: list[list[list[TranslationHypothesis]]] = [[] for _ in asked]
        for search in dict.fromkeys(one.search for one in asked):  # in order, each once
            those = [n for n, one in enumerate(asked) if one.search == search]
            found = iter(self.interpreter.translate([text for n in those for text in asked[n].texts], search))
            for n in those:
                said[n] = [next(found) for _ in asked[n].texts]
        wanted = [
            (text, one)
            for ask, several in zip(asked, said, strict=True)
            if ask.alignment
            for text, found in zip(ask.texts, several, strict=True)
            for one in found
        ]
        looked = iter(self.interpreter.align([text for text, _ in wanted], [one for _, one in wanted]))
        return [
            {
                "answers": [
                    {
                        "source": text,
                        "unknown": self.interpreter.vocabularies.source.encode([text])[0].count(UNK),
                        "translations": [_written(one, next(looked) if ask.alignment else None) for one in found],
                    }
                    for text, found in zip(ask.texts, several, strict=True)
                ]
            }
            for ask, several in zip(asked, said, strict=True)
        ]


def _written(one: TranslationHypothesis, looked: AlignedTranslation | None) -> dict[str, object]:
    found: dict[str, object] = {
        "text": one.text,
        "score": one.score,
        "log_prob": one.log_prob,
        "finished": one.finished,
    }
    if looked is not None:
        found["alignment"] = {
            "source": [labels.visible_label(piece) for piece in looked.source],
            "target": [labels.visible_label(piece) for piece in looked.target],
            # seven places are all that float32 knows of a share, in half the letters
            "weights": looked.weights.double().round(decimals=7).tolist(),
        }
    return found
