"""Bodies: whatever arrives is an object of JSON or a sentence."""

import json

import pytest
from hypothesis import given, strategies as st
from tests.for_each import for_each
from tests.serve.conftest import Gated, post, visit

from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.json_body import parse_object

BAD: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "the body must be JSON, but at line 1, column 1: Expecting value"),
    "half": (b'{"word": "a', 400, "the body must be JSON, but at line 1, column 10"),
    "latin1": ('{"word": "é"}'.encode("latin1"), 400, "the body must be UTF-8, but byte 0xe9 at position 11 is not"),
    "utf-16": ('{"word": "a"}'.encode("utf-16"), 400, "the body must be UTF-8, but byte 0xff at position 1 is not"),
    "a mark": ('\ufeff{"word": "a"}'.encode(), 400, "the body must be JSON"),
    "NaN": (b'{"word": NaN}', 400, "NaN is not a JSON number; leave it out"),
    "infinity": (b'{"word": -Infinity}', 400, "-Infinity is not a JSON number"),
    "deep": (b'{"word": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", 400, "nested too deeply"),
    "digits": (b'{"word": ' + b"9" * 9999 + b"}", 400, "too many digits"),
    "twice": (b'{"word": "a", "word": "b"}', 400, "'word' is given twice; give it once"),
    "a list": (b'["a"]', 422, "the body must be an object, got a list"),
    "a string": (b'"a"', 422, "the body must be an object, got a string"),
    "null": (b"null", 422, "the body must be an object, got null"),
    "a number": (b"1e999", 422, "the body must be an object, got a number"),
}


@for_each("name", BAD)
def test_bad_bodies(name: str, gated: Gated) -> None:
    body, status, sentence = BAD[name]
    answer = post(gated, body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    assert sentence in answer.json()["error"]
    assert not gated.calls


@given(
    st.binary(max_size=60) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes(body: bytes) -> None:
    refused = None
    try:
        assert isinstance(parse_object(body, ["a"]), dict)
    except RequestError as error:
        refused = error
    assert refused is None or (refused.status in (400, 422) and "error" in json.loads(refused.body()))


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({}, "the content type must be application/json, got 'none'"),
        ({"content-type": "text/plain"}, "got 'text/plain'"),
        ({"content-type": "application/x-www-form-urlencoded"}, "must be application/json"),
        (
            {"content-type": "application/json", "content-encoding": "gzip"},
            "must not be compressed, got content-encoding 'gzip'",
        ),
    ],
)
def test_other_kinds(headers: dict[str, str], sentence: str, gated: Gated) -> None:
    answer = visit(gated, lambda client: client.post("/v1/shout", content=b'{"word": "a"}', headers=headers))
    assert answer.status_code == 415
    assert sentence in answer.json()["error"]


def test_a_charset_may_be_said(gated: Gated) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = visit(gated, lambda client: client.post("/v1/shout", content=b'{"word": "a"}', headers=headers))
    assert answer.json() == {"said": "A"}


def test_too_large(gated: Gated) -> None:
    limits = Limits(body=100)
    assert post(gated, b'{"word": "' + b"a" * 88 + b'"}', limits).status_code == 200
    answer = post(gated, b'{"word": "' + b"a" * 89 + b'"}', limits)
    assert answer.status_code == 413
    assert answer.json() == {"error": "a body may have at most 100 bytes; send less at once"}

    async def parts() -> object:
        for _ in range(20):
            yield b" " * 10

    headers = {"content-type": "application/json"}
    chunked = visit(gated, lambda client: client.post("/v1/shout", content=parts(), headers=headers), limits)
    assert chunked.status_code == 413


@given(
    st.dictionaries(
        st.sampled_from(["a", "b\n", "ねこ", '"']),
        st.recursive(st.none() | st.integers() | st.booleans() | st.text(), st.lists),
    ),
    st.sampled_from([None, 1, "\t"]),
)
def test_an_object_is_what_json_reads(value: dict[str, object], indent: int | str | None) -> None:
    body = json.dumps(value, indent=indent).encode()
    assert parse_object(b" " + body + b"\n", ["a", "b\n", "ねこ", '"']) == value


@for_each(
    ("body", "message"),
    [(b"{", "Expecting property name enclosed in double quotes"), (b'{"a"', "Expecting ':' delimiter"),
     (b'{"a" 1}', "Expecting ':' delimiter"), (b'{"a": }', "Expecting value"), (b'{"a": 1', "Expecting ',' delimiter"),
     (b'{"a": 1 "b"', "Expecting ',' delimiter"), (b'{"a": 1,', "Expecting property name enclosed in double quotes"),
     (b'{"a": 1}}', "Extra data"), (b'{"a', "Unterminated string starting at"), (b"{1: 2}", "Expecting property name")],
)  # fmt: skip
def test_where_an_object_breaks_off(body: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=f"the body must be JSON, but at line 1, column .*: {message}"):
        parse_object(body, ["a"])


@pytest.mark.parametrize(
    ("body", "shown"),
    [(b'{"a": 1, "z": [[[[, NaN', "z"), (b'{"' + b"z" * 1_000_000, "z" * 39 + "…"), (b'{"\\u007a": NaN', "z")],
)
def test_nothing_behind_an_unknown_name_is_parsed(body: bytes, shown: str) -> None:
    """A megabyte there would take the time of all other requests: these bodies are not even JSON."""
    with pytest.raises(RequestError, match=f"unknown field '{shown}'; known are: a, bb") as error:
        parse_object(body, ["a", "bb"])
    assert error.value.status == 422
