"""Pydantic models of request and answer bodies: strict types, no unknown fields, and one sentence per error.

class Body(RequestModel):
    word: Annotated[str, Field(description="Word to shout.")]

body = validate(limited(Body, word=Field(max_length=40)), {"word": "a"})      Body, or RequestError 422
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

from regard.common.suggestions import known
from regard.common.wording import clipped
from regard.serve.errors import RequestError, kind, missing_library
from regard.serve.http.body_rules import Rule

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
except ImportError as error:
    raise missing_library() from error

__all__ = [
    "AnswerModel",
    "ErrorAnswer",
    "Field",
    "RequestModel",
    "SingleOrList",
    "limited",
    "unknown",
    "validate",
    "with_fields",
    "with_rules",
]

Model = TypeVar("Model", bound=BaseModel)
_TYPES = {"string": "a string", "boolean": "true or false", "integer": "a whole number", "number": "a number"}


def _describe_request(schema: dict[str, Any], model: "type[RequestModel]") -> None:
    if model.example:
        schema["example"] = model.example
    if issubclass(model, SingleOrList):
        schema["oneOf"] = [{"required": [name]} for name in model.pair]
    if model.rules:
        schema["allOf"] = list(model.rules)
    _omit_null_defaults(schema)


def _omit_null_defaults(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        if field.get("default", ...) is None:
            del field["default"]


class RequestModel(BaseModel):
    """The body of a POST. Fields declare their default inside `Field`, so that `limited` keeps it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, json_schema_extra=_describe_request)
    example: ClassVar[dict[str, Any]] = {}
    rules: ClassVar[Sequence[Rule]] = ()


Request = TypeVar("Request", bound=RequestModel)


class AnswerModel(BaseModel):
    """The body of an answer: documentation that tests compare answers with; answers are written without it."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_omit_null_defaults)


class ErrorAnswer(AnswerModel):
    """The body of every error."""

    error: Annotated[str, Field(description="One sentence: what is wrong, and the way out.")]


class SingleOrList(RequestModel):
    """A body that has one string or a list of strings, under one of two names."""

    pair: ClassVar[tuple[str, str]]

    @model_validator(mode="after")
    def _check_pair(self: Model) -> Model:
        single, several = self.pair  # type: ignore[attr-defined]
        if (single in self.model_fields_set) == (several in self.model_fields_set):
            raise ValueError(f"give {single}, a string, or {several}, a list of strings, and not both")
        return self

    def named(self) -> list[tuple[str, str]]:
        """Each string with its name in error sentences: "text", "texts[1]"."""
        single, several = self.pair
        if single in self.model_fields_set:
            return [(single, getattr(self, single))]
        return [(f"{several}[{n}]", value) for n, value in enumerate(getattr(self, several))]


def limited(model: type[Model], **constraints: Any) -> type[Model]:
    """The model with more constraints on fields, name=Field(le=5), or other defaults; /openapi.json shows them."""
    hints = get_type_hints(model, include_extras=True)
    return with_fields(model, {name: Annotated[hints[name], added] for name, added in constraints.items()})


def with_fields(model: type[Model], fields: dict[str, Any]) -> type[Model]:
    """The model with further fields: name -> Annotated[int, Field(default=1)]."""
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


def with_rules(model: type[Request], *rules: Rule) -> type[Request]:
    """The model with rules between its fields in /openapi.json."""
    return type(model.__name__, (model,), {"__doc__": model.__doc__, "__module__": model.__module__, "rules": rules})


def validate(model: type[Model], body: dict[str, object]) -> Model:
    """The body as its model; RequestError 422 with one sentence if it does not fit."""
    for name in body:  # first: pydantic would go on to list all errors of a body of many fields
        if name not in model.model_fields:
            raise RequestError(422, unknown("field", name, model.model_fields))
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise RequestError(422, _sentence(model, error.errors(include_url=False)[0])) from None


def _sentence(model: type[BaseModel], error: Any) -> str:
    problem, location, value = error["type"], error["loc"], error["input"]
    if not location:  # a check of the whole body
        return str(error["ctx"]["error"])
    name, *indices = location
    path = name + "".join(f"[{n}]" for n in indices)
    schema = model.model_json_schema()["properties"][name]
    if problem == "too_short":
        return f"{path} is an empty list; give {_range(schema)}"
    if problem == "too_long":
        remedy = "send several requests" if "minItems" in schema else "leave some out"
        return f"{path} must be {_range(schema)}, got {len(value)}; {remedy}"
    if problem == "string_too_short":
        return f"{path} is an empty string; leave it out"
    if problem == "missing":
        return f"{path} is missing; give {_description(schema)}"
    if problem == "literal_error" and isinstance(value, str):
        return unknown(path, value, _choices(schema))
    for _ in indices:
        schema = schema["items"]
    sentence = f"{path} must be {_description(schema)}, got {_value_text(value, schema)}"
    if problem == "list_type" and issubclass(model, SingleOrList):
        sentence += f"; for one write {model.pair[0]}"
    return sentence


def unknown(noun: str, name: str, names: Iterable[str]) -> str:
    """The sentence about a name that is not one of `names`."""
    try:
        known(noun, clipped(name, 40), names)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{name} is known")


def _description(schema: dict[str, Any]) -> str:
    """The values that a JSON Schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(_description(part) for part in schema["anyOf"])
    if choices := _choices(schema):
        return "one of " + ", ".join(map(repr, choices))
    if schema.get("type") == "array":
        return "a list of strings" if schema["items"].get("type") == "string" else "a list"
    described = _TYPES.get(schema.get("type", ""), str(schema.get("type")))
    return f"{described} {bounds}" if (bounds := _bounds(schema)) else described


def _choices(schema: dict[str, Any]) -> list[str]:
    """The words that a field takes; none if it takes other values."""
    parts = schema.get("anyOf", [schema])
    return [word for part in parts for word in part.get("enum", [part["const"]] if "const" in part else [])]


def _bounds(schema: dict[str, Any]) -> str:
    most = "and at most" if "exclusiveMinimum" in schema else "to"
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": most, "exclusiveMaximum": "and below"}
    return " ".join(f"{word} {schema[name]}" for name, word in words.items() if name in schema).removeprefix("and ")


def _range(schema: dict[str, Any]) -> str:
    fewest = schema.get("minItems", 0)
    return f"{fewest} to {schema['maxItems']}" if "maxItems" in schema else f"{fewest} or more"


def _value_text(value: object, schema: dict[str, Any]) -> str:
    """The number itself if a number is expected, else the type of the value."""
    types = {part.get("type") for part in schema.get("anyOf", [schema])}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value)[:40] if is_number and types & {"integer", "number"} else kind(value)
