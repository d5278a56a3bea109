"""GenerateEndpoint: a language model behind HTTP, a prompt in, its continuations out, whole or as they are sampled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from regard.inference.endpoint import Schema
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, with_rules
from regard.serve.http.body_rules import at_most_product, either, only_if
from regard.serve.http.text_body import TextBody, limited_texts
from regard.serve.model_endpoint import ModelEndpoint
from regard.serve.rounding import rounded, settle
from regard.serve.text_endpoint import option_error
from regard.tasks.language_model.options import GenerateText

if TYPE_CHECKING:
    from regard.tasks.language_model.generation import EncodedPrompt
    from regard.tasks.language_model.predictor import LanguageModelPredictor

# tokens per text, where neither a request nor the service says how many
_TOKENS, _MOST_TOKENS = 200, 1000
_STOP_WORDS = 8


class GenerateBody(TextBody):
    """The body of POST /v1/generate."""

    example: ClassVar[dict[str, Any]] = {"text": "The ", "tokens": 100, "top_p": 0.9, "stream": True}
    reads_empty: ClassVar[bool] = True

    tokens: Annotated[int, Field(default=_TOKENS, ge=1, description="Tokens to generate, at most.")]
    count: Annotated[int, Field(default=1, ge=1, description="Continuations per text.")]
    temperature: Annotated[
        float, Field(default=0.8, ge=0, allow_inf_nan=False, description="Divides the logits; 0 takes the likeliest.")
    ]
    top_k: Annotated[int | None, Field(default=None, ge=1, description="Sample from this many likeliest tokens.")]
    top_p: Annotated[
        float | None, Field(default=None, gt=0, le=1, description="Sample from the nucleus of this probability.")
    ]
    min_p: Annotated[
        float | None, Field(default=None, gt=0, le=1, description="The least share of the greatest probability.")
    ]
    repetition_penalty: Annotated[
        float | None, Field(default=None, gt=0, allow_inf_nan=False, description="Of tokens that the text has.")
    ]
    stop: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(default_factory=list, max_length=_STOP_WORDS, description="Words that end a text."),
    ]
    seed: Annotated[int, Field(default=0, ge=0, lt=2**63, description="Determines what is sampled.")]
    stream: Annotated[
        bool,
        Field(
            default=False,
            description=(
                'Whether to send server-sent events: {"text": …} for every piece, in the end {"answers": …}; '
                "for one text with one continuation."
            ),
        ),
    ]


class ContinuationAnswer(AnswerModel):
    """One continuation."""

    text: Annotated[str, Field(description="Without the prompt.")]
    tokens: int
    log_prob: Annotated[float, Field(description="The natural logarithm of its probability, under the model itself.")]
    finished: Annotated[bool, Field(description="Whether a stop word or the end of a document ended it.")]


class PromptAnswer(AnswerModel):
    """The continuations of one text."""

    texts: list[ContinuationAnswer]
    unknown: Annotated[int, Field(description="Tokens of the prompt that are not in the vocabulary.")]
    dropped: Annotated[int, Field(description="Tokens of the prompt before those that the model can read.")]


class GenerateAnswer(AnswerModel):
    """The answer of POST /v1/generate."""

    answers: Annotated[list[PromptAnswer], Field(description="One per text, in their order.")]


@dataclass(frozen=True)
class GenerateRequest:
    """Prompts to continue, and how."""

    texts: tuple[str, ...]
    options: GenerateText
    is_streamed: bool = False

    @property
    def count(self) -> int:
        return len(self.texts) * self.options.count


class GenerateEndpoint(ModelEndpoint):
    """Continuations of the prompts of many requests at a time; streams take turns, token by token."""

    name, task, unit, view, form = "generate", "language-model", "texts", "html/tinted_text", "generation_form"

    predictor: "LanguageModelPredictor"

    def __init__(self, predictor: "LanguageModelPredictor", limits: Limits, *, run: str, step: int) -> None:
        super().__init__(predictor, limits, run=run, step=step)
        self.tokens = limits.tokens or _MOST_TOKENS
        self.default_tokens = min(_TOKENS, self.tokens)
        # continuations of a request that asks for more tokens than the default: as many tokens at most as all texts of
        # a request have by default
        self.long_texts = max(limits.texts * self.default_tokens // self.tokens, 1)

    @property
    def title(self) -> str:
        return f"Generate with {self.run}"

    def page_data(self) -> dict[str, object]:
        return {"tokens": self.default_tokens, "most": self.tokens, "example": GenerateBody.example["text"]}

    @property
    def schema(self) -> Schema:
        body = limited_texts(
            GenerateBody,
            self.limits,
            tokens=Field(default=self.default_tokens, le=self.tokens),
            count=Field(le=self.limits.texts),
        )
        body = with_rules(
            body,
            either(
                *(
                    {**alternative, "tokens": {"maximum": self.default_tokens}}
                    for alternative in at_most_product("texts", "count", self.limits.texts)
                ),
                *at_most_product("texts", "count", self.long_texts),
            ),
            only_if("stream", texts={"maxItems": 1}, count={"maximum": 1}),
        )
        return Schema("Continue one text or several", body, GenerateAnswer)

    def facts(self) -> dict[str, object]:
        return {
            "model": type(self.predictor.model).__name__.lower(),
            "parameters": self.num_parameters,
            "vocabulary": len(self.predictor.tokenizer),
            "context": self.predictor.longest,
        }

    def input_limits(self) -> dict[str, object]:
        characters, long_texts = self.limits.characters, self.long_texts
        return {"texts": self.limits.texts, "characters": characters, "tokens": self.tokens, "long_texts": long_texts}

    def read(self, body: GenerateBody) -> GenerateRequest:
        texts = tuple(text for _, text in body.checked(self.limits))
        if len(texts) * body.count > self.limits.texts:
            raise RequestError(
                422,
                f"{len(texts)} texts with count={body.count} are more than the {self.limits.texts} continuations "
                "per request; ask for fewer",
            )
        if body.tokens > self.default_tokens and len(texts) * body.count > self.long_texts:
            raise RequestError(
                422,
                f"{len(texts) * body.count} continuations of {body.tokens} tokens are too many: more than "
                f"{self.default_tokens} tokens are generated for at most {self.long_texts} continuations per request; "
                "ask for fewer",
            )
        if body.stream and len(texts) * body.count > 1:
            raise RequestError(422, "stream is for one text with count=1; leave it out, or send several requests")
        for text in texts:
            try:
                self.predictor.encode(text)
            except ValueError as error:
                raise RequestError(422, str(error)) from error
        names = {item.name for item in fields(GenerateText)}
        options = {name: getattr(body, name) for name in names} | {"stop": tuple(body.stop)}
        try:
            return GenerateRequest(texts, GenerateText(**options), body.stream)
        except ValueError as error:
            raise option_error(error) from error

    def answer(self, requests: Sequence[GenerateRequest]) -> list[dict[str, object]]:
        """All texts of all requests are generated together, each with the options of its request."""
        prompts = [
            self.predictor.rows(text, number, request.options)
            for request in requests
            for number, text in enumerate(request.texts)
        ]
        rows = [row for each in prompts for row in each]
        continuations = self.predictor.continuations(rows)

        predict = self.predictor.continuations if len(rows) > 1 else lambda _: continuations
        written = iter(settle(continuations, rows, predict, self.predictor.continuation_json, attrgetter("margin")))
        answers = iter([self._answer(each[0].prompt, [next(written) for _ in each]) for each in prompts])
        return [{"answers": [next(answers) for _ in request.texts]} for request in requests]

    def stream(self, request: GenerateRequest) -> Iterator[dict[str, object]]:
        """{"text": …} for each piece of the text, then the answer."""
        (prompt,) = request.texts
        for piece in self.predictor.stream(prompt, request.options):
            if piece.text:
                yield {"text": piece.text}
            if piece.whole is not None:
                written = rounded(self.predictor.continuation_json(piece.whole))
                yield {"answers": [self._answer(self.predictor.encode(prompt), [written])]}

    def _answer(self, prompt: "EncodedPrompt", texts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"texts": [*texts], "unknown": prompt.num_unknown, "dropped": prompt.num_dropped}
