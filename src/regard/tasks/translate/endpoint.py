"""TranslateEndpoint: a translator behind HTTP, text in, translations and their alignments out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from regard.decoding.margins import NOISE
from regard.decoding.search import Beam, Greedy, Sampling, search_score
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, with_rules
from regard.serve.http.body_rules import at_most_field, at_most_product, either
from regard.serve.http.text_body import TextBody, limited_texts
from regard.serve.rounding import WEIGHT_DECIMALS, is_clear, rounded
from regard.tasks._text_generation import GeneratedText, TokenAlignment
from regard.viz.text import labels

if TYPE_CHECKING:
    from regard.tasks.translate.predictor import Translator

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
    search: Greedy | Beam
    alignment: bool

    @property
    def count(self) -> int:
        return len(self.texts)


class TranslateEndpoint:
    """Answers of `Translator.translate`, many requests at a time; `run` is the name of the model."""

    name = "translate"
    unit = "sentences"
    unpack = None

    def __init__(self, translator: "Translator", limits: Limits, *, run: str, step: int) -> None:
        self.translator, self.limits, self.run, self.step = translator, limits, run, step
        self.attends = translator.attends
        self.tokens = limits.tokens or translator.max_length
        if translator.longest is not None and self.tokens >= translator.longest:
            raise ValueError(
                f"tokens={self.tokens} is more than the {translator.longest - 1} positions that this model learned; "
                f"try tokens={translator.max_length}"
            )

    @property
    def page(self) -> PageSpec:
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
        default = min(_BEAM, most)
        body = limited_texts(TranslateBody, self.limits, beam=Field(default=default, le=most), nbest=Field(le=most))
        body = with_rules(
            body,
            at_most_field("nbest", "beam", default, most),
            either({"alignment": {"const": False}}, *at_most_product("texts", "nbest", self.limits.pictures)),
        )
        return Schema("Translate one text or several", body, TranslateAnswer)

    def model_info(self) -> dict[str, object]:
        limits, vocabularies = self.limits, self.translator.vocabularies
        return {
            "task": self.name,
            "run": self.run,
            "step": self.step,
            "model": type(self.translator.model).__name__.lower(),
            "attends": self.attends,
            "parameters": sum(p.numel() for p in self.translator.model.parameters()),
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
            raise RequestError(422, f"nbest={nbest} exceeds beam={beam}; raise beam")
        if body.alignment and not self.attends:
            raise RequestError(422, "alignment needs attention, and this model has none (decoder fixed); leave it out")
        if body.alignment and len(texts) * nbest > self.limits.pictures:
            raise RequestError(
                422,
                f"alignment is given for at most {self.limits.pictures} translations per request, "
                f"got {len(texts)} texts with nbest={nbest}; ask for fewer, or leave alignment out",
            )
        return TranslateRequest(texts, Greedy() if beam == 1 else Beam(beam, nbest), body.alignment)

    def _texts(self, body: TranslateBody) -> tuple[str, ...]:
        named = body.checked(self.limits)
        texts = [text for _, text in named]
        encoded = self.translator.vocabularies.source.encode(texts)
        for (where, _), ids in zip(named, encoded, strict=True):
            if len(ids) > self.tokens:
                raise RequestError(
                    422, f"{where} must have at most {self.tokens} tokens, got {len(ids)}; send it sentence by sentence"
                )
        return tuple(texts)

    def answer(self, requests: Sequence[TranslateRequest]) -> list[dict[str, object]]:
        answers: list[list[dict[str, object]]] = [[] for _ in requests]
        for search in dict.fromkeys(request.search for request in requests):  # in order, each once
            group = [n for n, request in enumerate(requests) if request.search == search]
            found = iter(self._translate([text for n in group for text in requests[n].texts], search))
            for n in group:
                request = requests[n]
                answers[n] = [self._answer(text, next(found), search, request.alignment) for text in request.texts]
        return [{"answers": each} for each in answers]

    def _translate(self, texts: Sequence[str], search: Greedy | Beam) -> list[list[GeneratedText]]:
        """The translations of each text, computed alone where a decision of the search was within the noise."""
        found = self.translator.translate(texts, search)
        return [
            hypotheses if hypotheses[0].margin > NOISE else self.translator.translate([text], search)[0]
            for text, hypotheses in zip(texts, found, strict=True)
        ]

    def _answer(
        self, text: str, hypotheses: Sequence[GeneratedText], search: Greedy | Beam, alignment: bool
    ) -> dict[str, object]:
        translations = [self._translation(text, hypothesis, search) for hypothesis in hypotheses]
        if alignment:
            for hypothesis, translation in zip(hypotheses, translations, strict=True):
                # one at a time: two equal weights of a hard attention must not be told apart by their batch
                (aligned,) = self.translator.align([text], [hypothesis])
                translation["alignment"] = _aligned(aligned)
        return {"source": text, "unknown": self.translator.num_unknown(text), "translations": translations}

    def _translation(self, text: str, hypothesis: GeneratedText, search: Greedy | Beam) -> dict[str, object]:
        """The log p of the search, rounded; of a pass over this translation alone, if it is not clear how to round it.

        The score follows from the rounded log p: as a number of its own it would be unclear as often again.
        """
        log_prob = hypothesis.log_prob
        if not is_clear(log_prob, "log_prob"):
            log_prob = self.translator.log_prob(text, hypothesis)
        log_prob = rounded(log_prob, "log_prob")
        run = self.translator.search_rule(search)
        assert not isinstance(run, Sampling)
        score = search_score(run, log_prob, len(hypothesis.with_eos))
        return {**hypothesis.json(), "score": rounded(score, "score"), "log_prob": log_prob}


def _aligned(aligned: TokenAlignment) -> dict[str, object]:
    return {
        "source": [labels.visible_label(token) for token in aligned.source],
        "target": [labels.visible_label(token) for token in aligned.target],
        "weights": aligned.weights.cpu().double().round(decimals=WEIGHT_DECIMALS).tolist(),
    }
