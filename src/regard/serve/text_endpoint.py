"""TextEndpoint: any predictor of texts behind HTTP, with the attention of its answers on request.

endpoint = TextEndpoint(predictor, limits, name="classify-text", title="Classify texts", options=PredictClasses)

POST /v1/classify-text {"text": "a good film", "top": 2, "attention": true}
{"answers": [{"classes": {…}, "attention": [{"name": "pool", "keys": ["a", "good", "film"], "weights": …}]}]}
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from regard.common.cancellation import check_cancelled
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.inference.predictor import Predictor, labelled_recording
from regard.recording.record import NO_ATTENTION
from regard.recording.recording import Recording
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, with_fields, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.http.text_body import TextBody, limited_texts
from regard.serve.rounding import WEIGHT_DECIMALS, settle
from regard.viz.text import labels

# weights in one answer: about ten bytes each
_MOST_WEIGHTS = 1_000_000


class AttentiveTextBody(TextBody):
    """The body of a request about texts."""

    example: ClassVar[dict[str, Any]] = {"text": "a b c"}

    attention: Annotated[bool, Field(default=False, description="Whether to give the attention behind each answer.")]


class TextMapAnswer(AnswerModel):
    """The attention of one call of a module."""

    name: Annotated[str, Field(description="The module that attends.")]
    kind: Annotated[str, Field(description="self, cross, alignment, glimpse or hop.")]
    verified: Annotated[bool, Field(description="Whether these weights are certainly those that the model used.")]
    queries: Annotated[list[str], Field(default=None, description="The tokens that attend, if they have names.")]
    keys: Annotated[list[str], Field(description="The tokens that are attended to.")]
    weights: Annotated[
        list[list[list[float]]], Field(description="weights[h][i][j]: the attention of query i to key j in head h.")
    ]


class TextAnswer(AnswerModel, extra="allow"):
    """The answer about one text: the output of the task, and its attention if the request asks for it."""

    attention: Annotated[list[TextMapAnswer], Field(default=None)]


class TextAnswers(AnswerModel):
    """The answers about texts."""

    answers: Annotated[list[TextAnswer], Field(description="One per text, in their order.")]


@dataclass(frozen=True)
class TextRequest:
    """Texts to answer, and how."""

    texts: tuple[str, ...]
    options: Any  # of the predictor; None: its defaults
    attention: bool

    @property
    def count(self) -> int:
        return len(self.texts)

    @property
    def is_streamed(self) -> bool:
        return getattr(self.options, "stream", False)


class TextEndpoint:
    """Answers of `Predictor.predict`, many requests at a time.

    `options` is the dataclass of the predictor's options: its fields become fields of the request, where JSON can hold
    them. `maxima` has the largest values of options whose bounds depend on the run, `about` facts about the model for
    GET /v1/model; `form` is the script of the page and `page_data` is read by it; `beside_attention` makes further keys
    of an answer with attention, by its text, output and recording; `example` is a text that the predictor can read, and
    `text_schema` what JSON Schema can say about such texts, a pattern or a format: the predictor refuses other texts.
    """

    unit = "texts"
    unpack = None

    def __init__(
        self,
        predictor: Predictor[str, Any],
        limits: Limits,
        *,
        name: str,
        title: str,
        options: type | None = None,
        maxima: Mapping[str, int] = MappingProxyType({}),
        about: Mapping[str, object] = MappingProxyType({}),
        form: str = "text_form",
        page_data: Mapping[str, object] = MappingProxyType({}),
        beside_attention: Callable[[str, Any, Recording], dict[str, Any]] | None = None,
        example: str = "a b c",
        text_schema: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.predictor, self.limits, self.name, self.options = predictor, limits, name, options
        self.maxima, self.example, self.text_schema = dict(maxima), example, text_schema
        self.facts, self.title, self.form, self.page_data = dict(about), title, form, page_data
        self.beside_attention = beside_attention
        # whether a model attends does not depend on the text
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=NO_ATTENTION)
            self.attends = bool(self._attended(example, self._options({}))["attention"])

    @property
    def page(self) -> PageSpec:
        data = {"task": self.name, "title": self.title, "attends": self.attends, "shown": {}, **self.page_data}
        return PageSpec(self.title, "text/tinted_text", self.form, data)

    @property
    def schema(self) -> Schema:
        body = with_fields(limited_texts(AttentiveTextBody, self.limits, self.text_schema), self._fields())
        body.example = {"text": self.example}
        rule = only_if("attention", texts={"maxItems": self.limits.pictures})
        return Schema("Answer one text or several", with_rules(body, rule), TextAnswers)

    def model_info(self) -> dict[str, object]:
        limits = self.limits
        return {
            "task": self.name,
            **self.facts,
            "attends": self.attends,
            "parameters": sum(p.numel() for p in self.predictor.model.parameters()),
            "limits": {
                "texts": limits.texts,
                "characters": limits.characters,
                "attention": limits.pictures,
                "body": limits.body,
                "seconds": limits.seconds,
            },
        }

    def _fields(self) -> dict[str, Any]:
        """The options as fields of a request: name -> type with its default."""
        if self.options is None:
            return {}
        hints = get_type_hints(self.options)
        named = {item.name: item for item in fields(self.options) if _is_json(hints[item.name])}
        if clash := named.keys() & AttentiveTextBody.model_fields.keys():
            raise ValueError(f"{self.options.__name__} has the fields {', '.join(clash)} of every request; rename them")
        return {
            name: Annotated[
                hints[name],
                Field(
                    default=item.default,
                    ge=item.metadata.get("minimum"),
                    gt=item.metadata.get("above"),
                    lt=item.metadata.get("below"),
                    le=self.maxima.get(name, item.metadata.get("maximum")),
                    json_schema_extra={key: item.metadata[key] for key in ("pattern",) if key in item.metadata},
                ),
            ]
            for name, item in named.items()
        }

    def _options(self, given: Mapping[str, object]) -> Any:
        return None if self.options is None else self.options(**given)

    def read(self, body: AttentiveTextBody) -> TextRequest:
        texts = tuple(text for _, text in body.checked(self.limits))
        if body.attention and not self.attends:
            raise RequestError(422, "attention needs a model that attends, and this one does not; leave attention out")
        if body.attention and len(texts) > self.limits.pictures:
            raise RequestError(
                422,
                f"attention is given for at most {self.limits.pictures} texts per request, got {len(texts)}; "
                "ask for fewer, or leave attention out",
            )
        given = {
            name: getattr(body, name) for name in body.model_fields_set if name not in AttentiveTextBody.model_fields
        }
        try:
            return TextRequest(texts, self._options(given), body.attention)
        except ValueError as error:
            raise option_error(error) from error

    def answer(self, requests: Sequence[TextRequest]) -> list[dict[str, object]]:
        answers: list[list[dict[str, Any]]] = [[] for _ in requests]
        plain = [n for n, request in enumerate(requests) if not request.attention]
        for options in dict.fromkeys(requests[n].options for n in plain):  # in order, each once
            group = [n for n in plain if requests[n].options == options]
            texts = [text for n in group for text in requests[n].texts]
            written = iter(self._settle(self._predict(texts, options), texts, options))
            for n in group:
                answers[n] = [next(written) for _ in requests[n].texts]
        for n, request in enumerate(requests):
            if request.attention:
                answers[n] = [self._attended(text, request.options) for text in request.texts]
        return [{"answers": each} for each in answers]

    def _settle(self, outputs: Sequence[Any], texts: Sequence[str], options: Any) -> list[dict[str, Any]]:
        def alone(n: int) -> Any:
            (output,) = self._predict([texts[n]], options)
            return output

        return settle(outputs, self.predictor.json, alone, self.predictor.margin)

    def _predict(self, texts: Sequence[str], options: Any) -> list[Any]:
        try:
            return self.predictor.predict(texts, options)
        except ValueError as error:
            raise option_error(error) from error

    def _attended(self, text: str, options: Any) -> dict[str, Any]:
        """The answer about one text with its maps; a recording has the labels of one text alone."""
        check_cancelled()
        try:
            output, recording = labelled_recording(self.predictor, text, options)
        except (ValueError, MemoryError) as error:
            raise option_error(error) from error
        (written,) = self._settle([output], [text], options)
        return {**written, **self.attention(text, output, recording)}

    def attention(self, text: str, output: Any, recording: Recording) -> dict[str, Any]:
        """The maps of an output and the keys beside them, as JSON."""
        further = {} if self.beside_attention is None else self.beside_attention(text, output, recording)
        return {"attention": _maps(recording), **further}


def _maps(recording: Recording) -> list[dict[str, object]]:
    """The maps over tokens, as JSON."""
    named = [(item, *recording.labels(item)) for item in recording]
    over_tokens = [(item, queries, keys) for item, queries, keys in named if keys is not None]
    count = sum(math.prod(item.shape[1:]) for item, _, _ in over_tokens)
    if count > _MOST_WEIGHTS:
        raise RequestError(
            422,
            f"the attention of this text has {count:,} weights, and an answer may have {_MOST_WEIGHTS:,}; "
            "send a shorter text, or leave attention out",
        )
    maps = []
    for item, queries, keys in over_tokens:
        weights = item.weights.pick(0).dense()  # "*heads q k"
        written: dict[str, object] = {"name": item.name or "model", "kind": item.kind, "verified": item.verified}
        if queries is not None:
            written["queries"] = [labels.visible_label(token) for token in queries]
        written["keys"] = [labels.visible_label(token) for token in keys]
        weights = weights.reshape(-1, *weights.shape[-2:]).cpu().double().round(decimals=WEIGHT_DECIMALS)
        maps.append({**written, "weights": weights.tolist()})
    return maps


def _is_json(hint: Any) -> bool:
    """Whether JSON has values of this type: a number, a string, true or false, one of several words, or null."""
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_json, get_args(hint)))
    return hint in (bool, int, float, str, NoneType) or get_origin(hint) is Literal


def option_error(error: Exception) -> RequestError:
    """The sentence of a predictor, whose options have dashes on the command line."""
    return RequestError(422, re.sub("--([a-z][a-z-]*)", lambda match: match[1].replace("-", "_"), str(error)))
