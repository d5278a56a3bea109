"""TranslateEndpoint: a translator behind HTTP, text in, translations and their alignments out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from regard.common.wording import shortened
from regard.decoding.margins import NOISE
from regard.decoding.search import Sampling, Search, search_score
from regard.inference.endpoint import Schema
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, with_rules
from regard.serve.http.body_rules import at_most_field, at_most_product, either, excluding
from regard.serve.http.text_body import TextBody, limited_texts
from regard.serve.model_endpoint import ModelEndpoint
from regard.serve.rounding import WEIGHT_DECIMALS, is_clear, rounded
from regard.serve.text_endpoint import option_error
from regard.tasks.shared.text_generation import GeneratedText, TokenAlignment
from regard.tasks.translate.options import PredictTranslations
from regard.tasks.translate.segments import Split, TextSegment, join_segments, split_text
from regard.viz.alignment import Alignment
from regard.viz.text import labels

if TYPE_CHECKING:
    from regard.tasks.translate.predictor import Translator

# hypotheses kept where a request does not say how many
_BEAM = 5
# the largest whole number of an option of sampling
_MOST = 2**31 - 1
_LANGUAGE = "^[a-z]{2,8}$"
_SENTENCES = {"properties": {"split": {"const": "sentences"}}, "required": ["split"]}
# the options of a search, and those of sampling
_SEARCHED = ("beam", "length_penalty")
_SAMPLED = ("temperature", "top_k", "top_p", "seed")


class TranslateBody(TextBody):
    """The body of POST /v1/translate."""

    example: ClassVar[dict[str, Any]] = {"text": "en: May 5, 2017", "beam": 5, "nbest": 1, "alignment": True}

    beam: Annotated[
        int,
        Field(default=_BEAM, ge=1, description="Hypotheses kept at every step; 1 takes the likeliest token each time."),
    ]
    nbest: Annotated[
        int, Field(default=1, ge=1, description="Translations per text or segment, the best first; at most beam.")
    ]
    length_penalty: Annotated[
        float,
        Field(
            default=None,
            ge=-10,
            le=10,
            description="α of log p / ((5 + length) / 6)^α, 1 if left out: a larger α favours longer translations.",
        ),
    ]
    sample: Annotated[
        bool, Field(default=False, description="Whether to sample translations instead of searching for the best.")
    ]
    temperature: Annotated[
        float,
        Field(default=None, gt=0, le=100, description="With sample: below 1 likely tokens are sampled more often."),
    ]
    top_k: Annotated[
        int, Field(default=None, ge=1, le=_MOST, description="With sample: from this many of the likeliest tokens.")
    ]
    top_p: Annotated[
        float,
        Field(default=None, gt=0, le=1, description="With sample: from the likeliest tokens of this probability."),
    ]
    seed: Annotated[
        int, Field(default=None, ge=0, le=_MOST, description="With sample: the same seed samples the same texts.")
    ]
    split: Annotated[
        Split,
        Field(
            default="none", description="How a text becomes segments that are translated one by one and joined again."
        ),
    ]
    language: Annotated[
        str,
        Field(
            default="en",
            description="With split sentences: the language of the texts, as an ISO 639 code.",
            json_schema_extra={"pattern": _LANGUAGE},
        ),
    ]
    alignment: Annotated[
        bool, Field(default=False, description="Whether to give the attention of each token of a translation.")
    ]


class WordAlignmentAnswer(AnswerModel):
    """The same attention by words: the sum over the tokens of a source word, the mean over those of a target word."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]


class AlignmentAnswer(AnswerModel):
    """weights[i][j] is the attention of target token i to source token j. The last tokens are the ends of the
    sentences; a character that cannot be seen is shown by a sign: a blank is ␣."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    words: Annotated[WordAlignmentAnswer, Field(default=None, description="If tokens are parts of words.")]


class TranslationAnswer(AnswerModel):
    """One translation of a text."""

    text: str
    score: Annotated[float, Field(description="Translations are ranked by it.")]
    log_prob: Annotated[float, Field(description="The natural logarithm of its probability.")]
    finished: Annotated[bool, Field(description="Whether it ended within the limit of tokens.")]
    alignment: Annotated[AlignmentAnswer, Field(default=None, description="If the request asks for it.")]


class SegmentAnswer(AnswerModel):
    """The translations of one segment of a text."""

    before: Annotated[str, Field(description="The white space before it.")]
    source: str
    unknown: Annotated[int, Field(description="Tokens that are not in the vocabulary.")]
    translations: Annotated[list[TranslationAnswer], Field(description="The best first.")]


class TranslationsAnswer(AnswerModel):
    """The translations of one text. Of a text that is split there is one, the best of every segment joined; its score
    and log_prob are the sums."""

    source: str
    unknown: Annotated[int, Field(description="Tokens that are not in the vocabulary.")]
    translations: Annotated[list[TranslationAnswer], Field(description="The best first.")]
    segments: Annotated[list[SegmentAnswer], Field(default=None, description="If the request splits texts.")]


class TranslateAnswer(AnswerModel):
    """The answer of POST /v1/translate."""

    answers: Annotated[list[TranslationsAnswer], Field(description="One per text, in their order.")]


@dataclass(frozen=True)
class TranslateRequest:
    """Texts to translate, and how."""

    texts: tuple[str, ...]
    search: Search
    alignment: bool
    # the segments of each text; none if texts are translated whole
    segments: tuple[tuple[TextSegment, ...], ...] = ()

    @property
    def lines(self) -> list[str]:
        """The lines for the translator: the segments, or the texts."""
        return [segment.text for several in self.segments for segment in several] or list(self.texts)

    @property
    def count(self) -> int:
        return len(self.lines)


# filled in on the page, whose source language is English unless another is named
_EXAMPLE = "A man reads a book. Two dogs run in the park."


class TranslateEndpoint(ModelEndpoint):
    """Answers of `Translator.translate`, many requests at a time; `run` is the name of the model."""

    name, unit, view, form = "translate", "sentences", "html/alignment", "translation_form"

    predictor: "Translator"

    def __init__(self, predictor: "Translator", limits: Limits, *, run: str, step: int) -> None:
        super().__init__(predictor, limits, run=run, step=step)
        self.attends = predictor.attends
        self.tokens = limits.tokens or predictor.max_length
        if predictor.longest is not None and self.tokens >= predictor.longest:
            raise ValueError(
                f"tokens={self.tokens} is more than the {predictor.longest - 1} positions that this model learned; "
                f"try tokens={predictor.max_length}"
            )

    @property
    def title(self) -> str:
        return f"Translate with {self.run}"

    def page_data(self) -> dict[str, object]:
        limits = {**self.input_limits(), "body": self.limits.body}
        empty = {"title": "", "note": "", "text": ["", ""], "source": [], "target": [], "weights": ""}
        run = {"run": self.run, "attends": self.attends, "beam": self.limits.beam, "example": _EXAMPLE}
        return {**run, "limits": limits, "alignments": [empty]}

    @property
    def schema(self) -> Schema:
        most = self.limits.beam
        default = min(_BEAM, most)
        body = limited_texts(TranslateBody, self.limits, beam=Field(default=default, le=most), nbest=Field(le=most))
        nbest = at_most_field("nbest", "beam", default, most)
        body = with_rules(
            body,
            # samples have no beam
            {"anyOf": [{"properties": {"sample": {"const": True}}, "required": ["sample"]}, *nbest["anyOf"]]},
            either({"alignment": {"const": False}}, *at_most_product("texts", "nbest", self.limits.pictures)),
            excluding("sample", _SEARCHED, _SAMPLED),
            {"anyOf": [_SENTENCES, {"not": {"required": ["language"]}}]},
        )
        return Schema("Translate one text or several", body, TranslateAnswer)

    def facts(self) -> dict[str, object]:
        vocabularies = self.predictor.vocabularies
        return {
            "model": type(self.predictor.model).__name__.lower(),
            "attends": self.attends,
            "parameters": self.num_parameters,
            "vocabulary": {"source": len(vocabularies.source), "target": len(vocabularies.target)},
        }

    def input_limits(self) -> dict[str, object]:
        limits = self.limits
        return {
            "texts": limits.texts,
            "characters": limits.characters,
            "tokens": self.tokens,
            "beam": limits.beam,
            "pictures": limits.pictures,
        }

    def read(self, body: TranslateBody) -> TranslateRequest:
        named = body.checked(self.limits)
        if not re.fullmatch(_LANGUAGE, body.language, re.ASCII):
            raise RequestError(
                422,
                f"language must be a code such as en or deu, got {shortened(body.language, 40)}; leave it out for en",
            )
        if "language" in body.model_fields_set and body.split != "sentences":
            raise RequestError(422, 'language is an option of "split": "sentences"; leave it out, or add this one')
        split = [tuple(split_text(text, body.split, body.language)) for _, text in named]
        lines = [(where, segment.text) for (where, _), several in zip(named, split, strict=True) for segment in several]
        self._check_lines(lines, body)
        search, nbest = self._search(body), body.nbest
        if body.alignment and not self.attends:
            raise RequestError(
                422, "alignment needs attention, and this model has none (a decoder without attention); leave it out"
            )
        if body.alignment and len(lines) * nbest > self.limits.pictures:
            raise RequestError(
                422,
                f"alignment is given for at most {self.limits.pictures} translations per request, got "
                f"{len(lines)} {'texts' if body.split == 'none' else body.split} with nbest={nbest}; ask for fewer, or "
                "leave alignment out",
            )
        texts = tuple(text for _, text in named)
        return TranslateRequest(texts, search, body.alignment, () if body.split == "none" else tuple(split))

    def _check_lines(self, lines: Sequence[tuple[str, str]], body: TranslateBody) -> None:
        if len(lines) > self.limits.texts:
            raise RequestError(
                422, f"a request has at most {self.limits.texts} {body.split}, got {len(lines)}; send several requests"
            )
        encoded = self.predictor.vocabularies.source.encode([line for _, line in lines])
        way = "send it sentence by sentence" if body.split == "none" else "shorten its longest sentence"
        for (where, _), ids in zip(lines, encoded, strict=True):
            if len(ids) > self.tokens:
                raise RequestError(422, f"{where} must have at most {self.tokens} tokens, got {len(ids)}; {way}")

    def _search(self, body: TranslateBody) -> Search:
        """The search of a request; options that mean nothing to it are refused as on the command line."""
        options = {name: getattr(body, name) for name in (*_SEARCHED, *_SAMPLED) if name in body.model_fields_set}
        if not body.sample:
            options["beam"] = body.beam
            if body.nbest > body.beam:
                raise RequestError(422, f"nbest={body.nbest} exceeds beam={body.beam}; raise beam")
        try:
            return PredictTranslations(**options, nbest=body.nbest, sample=body.sample).search
        except ValueError as error:
            raise option_error(error) from error

    def answer(self, requests: Sequence[TranslateRequest]) -> list[dict[str, object]]:
        answers: list[list[dict[str, object]]] = [[] for _ in requests]
        for search in dict.fromkeys(request.search for request in requests):  # in order, each once
            group = [n for n, request in enumerate(requests) if request.search == search]
            if isinstance(search, Sampling):
                # a sample depends on the number of its line in the request, and is computed line by line
                hypotheses_of_lines = iter(
                    [self._sample(line, search, i) for n in group for i, line in enumerate(requests[n].lines)]
                )
            else:
                hypotheses_of_lines = iter(self._translate([line for n in group for line in requests[n].lines], search))
            for n in group:
                answers[n] = list(self._texts(requests[n], hypotheses_of_lines))
        return [{"answers": each} for each in answers]

    def _sample(self, line: str, search: Sampling, number: int) -> list[GeneratedText]:
        (hypotheses,) = self.predictor.translate([line], search, first=number)
        return hypotheses

    def _translate(self, texts: Sequence[str], search: Search) -> list[list[GeneratedText]]:
        """The translations of each text, computed alone where a decision of the search was within the noise."""
        hypotheses_of_lines = self.predictor.translate(texts, search)
        return [
            hypotheses if hypotheses[0].margin > NOISE else self.predictor.translate([text], search)[0]
            for text, hypotheses in zip(texts, hypotheses_of_lines, strict=True)
        ]

    def _texts(
        self, request: TranslateRequest, hypotheses_of_lines: Iterator[Sequence[GeneratedText]]
    ) -> Iterator[dict[str, object]]:
        """The answer of each text of a request, from the translations of its lines."""
        if not request.segments:
            for text in request.texts:
                yield self._answer(text, next(hypotheses_of_lines), request.search, request.alignment)
            return
        for text, segments in zip(request.texts, request.segments, strict=True):
            answers: list[dict[str, Any]] = [
                {
                    "before": segment.before,
                    **self._answer(segment.text, next(hypotheses_of_lines), request.search, request.alignment),
                }
                for segment in segments
            ]
            best = [answer["translations"][0] for answer in answers]
            whole = {
                "text": join_segments(segments, [each["text"] for each in best]),
                "score": rounded(sum(each["score"] for each in best), "score"),
                "log_prob": rounded(sum(each["log_prob"] for each in best), "log_prob"),
                "finished": all(each["finished"] for each in best),
            }
            unknown = sum(answer["unknown"] for answer in answers)
            yield {"source": text, "unknown": unknown, "translations": [whole], "segments": answers}

    def _answer(
        self, text: str, hypotheses: Sequence[GeneratedText], search: Search, alignment: bool
    ) -> dict[str, object]:
        translations = [self._translation(text, hypothesis, search) for hypothesis in hypotheses]
        if alignment:
            for hypothesis, translation in zip(hypotheses, translations, strict=True):
                # one at a time: two equal weights of a hard attention must not be told apart by their batch
                (aligned,) = self.predictor.align([text], [hypothesis])
                translation["alignment"] = _aligned(aligned)
        return {"source": text, "unknown": self.predictor.num_unknown(text), "translations": translations}

    def _translation(self, text: str, hypothesis: GeneratedText, search: Search) -> dict[str, object]:
        """The log p of the search, rounded; of a pass over this translation alone, if it is not clear how to round it.

        The score follows from the rounded log p: as a number of its own it would be unclear as often again.
        """
        log_prob = hypothesis.log_prob
        if not is_clear(log_prob, "log_prob"):
            log_prob = self.predictor.log_prob(text, hypothesis)
        log_prob = rounded(log_prob, "log_prob")
        run = self.predictor.search_rule(search)
        # samples are ranked by their probability
        score = log_prob if isinstance(run, Sampling) else search_score(run, log_prob, len(hypothesis.with_eos))
        return {**hypothesis.json(), "score": rounded(score, "score"), "log_prob": log_prob}


def _aligned(aligned: TokenAlignment) -> dict[str, object]:
    alignment = Alignment(aligned.source, aligned.target, aligned.weights)
    words = alignment.by_words()
    return _written(alignment) | ({} if words is None else {"words": _written(words)})


def _written(alignment: Alignment) -> dict[str, object]:
    return {
        "source": [labels.visible_label(token) for token in alignment.source],
        "target": [labels.visible_label(token) for token in alignment.target],
        "weights": alignment.weights.cpu().double().round(decimals=WEIGHT_DECIMALS).tolist(),
    }
