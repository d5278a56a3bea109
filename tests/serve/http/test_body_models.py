"""Bodies against their models: each fault is one sentence that names the field, the value and the way out."""

import json
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given, strategies as st
from tests.for_each import for_each

from regard.serve.errors import RequestError
from regard.serve.http.body_models import Field, RequestModel, SingleOrList, limited, validate


class Body(SingleOrList):
    pair: ClassVar[tuple[str, str]] = ("word", "words")
    example: ClassVar[dict[str, Any]] = {"word": "a"}

    word: Annotated[str, Field(default_factory=str, description="A word.")]
    words: Annotated[list[str], Field(default_factory=list, min_length=1)]
    share: Annotated[float, Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)]
    count: Annotated[int | None, Field(default=None, ge=2)]
    search: Annotated[Literal["greedy", "beam"], Field(default="beam")]
    style: Annotated[Literal["plain"] | None, Field(default=None)]


class Sized(RequestModel):
    size: Annotated[int, Field(ge=1)]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "give word, a string, or words, a list of strings, and not both"),
    "an unknown field first": ({"wrod": 3, "word": 3}, "unknown field 'wrod'; did you mean 'word'? known are: word, w"),
    "a name that is no text": ({"a\ud800": 1}, "unknown field 'a\\ud800'; known are: word"),
    "a long name": ({"x" * 99: 1}, "unknown field '" + "x" * 39 + "…'; known are: word"),
    "a list": ({"words": {"a": 1}}, "words must be a list of strings, got an object; for one write word"),
    "an item": ({"words": ["a", 3]}, "words[1] must be a string, got a number"),
    "no items": ({"words": []}, "words is an empty list; give 1 or more"),
    "a share": ({"word": "a", "share": 1}, "share must be a number above 0 and below 1, got 1"),
    "no share": ({"word": "a", "share": True}, "share must be a number above 0 and below 1, got true or false"),
    "an infinite share": ({"word": "a", "share": 1e999}, "share must be a number above 0 and below 1, got inf"),
    "a huge share": ({"word": "a", "share": 10**400}, "share must be a number above 0 and below 1, got 1000"),
    "a count": ({"word": "a", "count": 1}, "count must be a whole number from 2 or null, got 1"),
    "a search": ({"word": "a", "search": "bean"}, "unknown search 'bean'; did you mean 'beam'? known are: gre"),
    "a style": ({"word": "a", "style": "plan"}, "unknown style 'plan'; did you mean 'plain'? known are: plain"),
    "no style": ({"word": "a", "style": 3}, "style must be one of 'plain' or null, got a number"),
    "no search": ({"word": "a", "search": None}, "search must be one of 'greedy', 'beam', got null"),
}  # fmt: skip


@for_each("name", BAD)
def test_faults(name: str) -> None:
    body, sentence = BAD[name]
    with pytest.raises(RequestError) as caught:
        validate(Body, body)
    assert caught.value.status == 422
    assert caught.value.sentence.startswith(sentence)
    assert "error" in json.loads(caught.value.body())


def test_values_and_defaults() -> None:
    body = validate(Body, {"words": ["a", "b"], "share": 0.25})
    assert body.named() == [("words[0]", "a"), ("words[1]", "b")]
    assert (body.share, body.count, body.search) == (0.25, None, "beam")
    assert validate(Body, {"word": ""}).named() == [("word", "")]


def test_limits_are_in_the_sentence_and_in_the_schema() -> None:
    body = limited(Body, words=Field(max_length=2), count=Field(default=3, le=5))
    assert validate(body, {"word": "a"}).count == 3
    with pytest.raises(RequestError, match="^words must be 1 to 2, got 3; send several requests$"):
        validate(body, {"words": ["a"] * 3})
    with pytest.raises(RequestError, match="^count must be a whole number from 2 to 5 or null, got 6$"):
        validate(body, {"word": "a", "count": 6})
    schema = body.model_json_schema()
    assert schema["example"] == {"word": "a"}
    assert schema["oneOf"] == [{"required": ["word"]}, {"required": ["words"]}]
    assert schema["properties"]["words"]["maxItems"] == 2
    assert schema["properties"]["word"] == {"type": "string", "title": "Word", "description": "A word."}


def test_a_missing_field() -> None:
    with pytest.raises(RequestError, match="^size is missing; give a whole number from 1$"):
        validate(Sized, {})


NAMES = st.sampled_from(["word", "words", "share", "count", "search"]) | st.text(st.characters())
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)


@given(st.dictionaries(NAMES, VALUES))
def test_any_values(body: dict[str, Any]) -> None:
    refused = None
    try:
        assert isinstance(validate(Body, body), Body)
    except RequestError as error:
        refused = error
    assert refused is None or (refused.status == 422 and len(refused.sentence) < 300)
