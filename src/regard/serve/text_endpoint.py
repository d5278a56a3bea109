"""TextEndpoint: any predictor of texts behind HTTP, with the attention of its answers on request.

endpoint = TextEndpoint(predictor, limits, run="reviews", step=1000)

POST /v1/classify-text {"text": "a good film", "top": 2, "attention": true}
{"answers": [{"classes": {…}, "attention": [{"name": "pool", "keys": ["a", "good", "film"], "weights": …}]}]}
"""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from regard.common.cancellation import check_cancelled
from regard.inference.endpoint import Schema
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.inference.text_predictor import TextPredictor
from regard.recording.record import NO_ATTENTION
from regard.recording.recording import Recording
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, with_fields, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.http.text_body import TextBody, limited_texts
from regard.serve.model_endpoint import InputsRequest, ModelEndpoint
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


class TextEndpoint(ModelEndpoint):
    """Answers of `TextPredictor.predict`, many requests at a time.

    The fields of the predictor's options become fields of the request, where JSON can hold them.
    """

    unit, view, form = "texts", "html/tinted_text", "text_form"

    predictor: TextPredictor[Any]

    def __init__(self, predictor: TextPredictor[Any], limits: Limits, *, run: str, step: int) -> None:
        super().__init__(predictor, limits, run=run, step=step)
        self.name, self.options = predictor.served_as, predictor.request_options
        # whether a model attends does not depend on the text
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=NO_ATTENTION)
            self.attends = bool(self._attended(predictor.example(), self._options({}))["attention"])

        self.example = self._readable(predictor.page_example) or predictor.example()

    def _readable(self, text: str) -> str | None:
        """The text, if this model reads it: it may be too long for a small one."""
        try:
            self.predictor.predict([text], self._options({}))
        except ValueError:
            return None
        return text

    @property
    def title(self) -> str:
        return self.predictor.page_title.format(run=self.run)

    def page_data(self) -> dict[str, object]:
        limits = {"texts": self.limits.texts, "body": self.limits.body}
        return {"attends": self.attends, "example": self.example, "limits": limits}

    @property
    def schema(self) -> Schema:
        body = limited_texts(AttentiveTextBody, self.limits, self.predictor.text_schema)
        body = with_fields(body, self._fields())
        body.example = {"text": self.predictor.example()}
        rule = only_if("attention", texts={"maxItems": self.limits.pictures})
        return Schema("Answer one text or several", with_rules(body, rule), TextAnswers)

    def facts(self) -> dict[str, object]:
        return {**self.predictor.about(), "attends": self.attends, "parameters": self.num_parameters}

    def input_limits(self) -> dict[str, object]:
        limits = self.limits
        return {"texts": limits.texts, "characters": limits.characters, "attention": limits.pictures}

    def _fields(self) -> dict[str, Any]:
        """The options as fields of a request: name -> type with its default."""
        if self.options is None:
            return {}
        hints, maxima = get_type_hints(self.options), self.predictor.option_maxima(self.limits)
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
                    le=maxima.get(name, item.metadata.get("maximum")),
                    json_schema_extra={key: item.metadata[key] for key in ("pattern",) if key in item.metadata},
                ),
            ]
            for name, item in named.items()
        }

    def _options(self, given: Mapping[str, object]) -> Any:
        return None if self.options is None else self.options(**given)

    def read(self, body: AttentiveTextBody) -> InputsRequest:
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
            return InputsRequest(texts, self._options(given), body.attention)
        except ValueError as error:
            raise option_error(error) from error

    def answer(self, requests: Sequence[InputsRequest]) -> list[dict[str, object]]:
        answers: list[list[dict[str, Any]]] = [[] for _ in requests]
        plain = [n for n, request in enumerate(requests) if not request.attention]
        for options in dict.fromkeys(requests[n].options for n in plain):  # in order, each once
            group = [n for n in plain if requests[n].options == options]
            texts = [text for n in group for text in requests[n].inputs]
            written = iter(self._settle(self._predict(texts, options), texts, options))
            for n in group:
                answers[n] = [next(written) for _ in requests[n].inputs]
        for n, request in enumerate(requests):
            if request.attention:
                answers[n] = [self._attended(text, request.options) for text in request.inputs]
        return [{"answers": each} for each in answers]

    def _settle(self, outputs: Sequence[Any], texts: Sequence[str], options: Any) -> list[dict[str, Any]]:
        predict = partial(self._predict, options=options)
        return settle(outputs, texts, predict, self.predictor.json, self.predictor.margin)

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
        """The maps of an output, as JSON."""
        return {"attention": _maps(recording)}


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
