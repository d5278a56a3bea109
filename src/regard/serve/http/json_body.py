"""Reads a request body as one JSON object, with limits of size and time, strict UTF-8, known names, each once.

204.0 and 2.04e2 are the integer 204, as JSON Schema counts them.

The fields of the object are parsed one by one, and the first unknown name ends it: a megabyte behind it is not parsed,
which would take the time of all other requests.
"""

import asyncio
import json
import re
from collections.abc import Collection
from typing import NoReturn

from starlette.requests import ClientDisconnect, Request

from regard.inference.limits import Limits
from regard.serve.errors import RequestError, kind, shorten
from regard.serve.http.body_models import unknown

_BLANKS = re.compile(r"[ \t\n\r]*")
# characters of a letter that is written as an escape, \u0061
_ESCAPE = 6


async def read(request: Request, limits: Limits, names: Collection[str]) -> dict[str, object]:
    """The JSON object in the body of a request; RequestError if there is none, or if it has a field of another name."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(
            415, f"the content type must be application/json, got {content_type or 'none'!r}; set it for the body"
        )
    if encoding := request.headers.get("content-encoding"):
        raise RequestError(415, f"the body must not be compressed, got content-encoding {encoding!r}; send it as it is")
    return parse_object(await _bytes(request, limits), names)


async def _bytes(request: Request, limits: Limits) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.body:
        raise _large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.arrival):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise _large(limits)
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {limits.arrival:g} seconds; send it faster") from None
    except ClientDisconnect:
        raise RequestError(400, "the connection ended before the body did") from None
    return bytes(body)


def _large(limits: Limits) -> RequestError:
    return RequestError(413, f"a body may have at most {limits.body:,} bytes; send less at once")


def parse_object(body: bytes, names: Collection[str]) -> dict[str, object]:
    """The JSON object in these bytes, whose fields have some of these names."""
    try:
        text = body.decode("utf-8")
        start = _skip_blanks(text, 0)
        value = _parse_fields(text, start, names) if text[start : start + 1] == "{" else _DECODER.decode(text)
    except UnicodeDecodeError as error:
        position = f"byte 0x{body[error.start]:02x} at position {error.start + 1}"
        raise RequestError(400, f"the body must be UTF-8, but {position} is not; convert it first") from None
    except json.JSONDecodeError as error:
        sentence = f"the body must be JSON, but at line {error.lineno}, column {error.colno}: {error.msg}"
        raise RequestError(400, sentence) from None
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply; send one flat object") from None
    except ValueError:  # more digits than Python turns into a number
        raise RequestError(400, "the body holds a number of too many digits") from None
    if not isinstance(value, dict):
        raise RequestError(422, f"the body must be an object, got {kind(value)}; /openapi.json describes it")
    return value


def _parse_fields(text: str, start: int, names: Collection[str]) -> dict[str, object]:
    """The object whose brace opens at `start`, which ends the text."""
    fields: dict[str, object] = {}
    at = _skip_blanks(text, start + 1)
    if text[at : at + 1] != "}":
        while True:
            name, at = _parse_name(text, at, names)
            if name in fields:
                raise _repeated(name)
            fields[name], at = _DECODER.raw_decode(text, at)
            at = _skip_blanks(text, at)
            if text[at : at + 1] != ",":
                break
            at = _skip_blanks(text, at + 1)
        if text[at : at + 1] != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    end = _skip_blanks(text, at + 1)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return fields


def _parse_name(text: str, at: int, names: Collection[str]) -> tuple[str, int]:
    """A name and the position of its value; RequestError for an unknown one, of which only the beginning is read."""
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    longest = _ESCAPE * max(map(len, names)) + 1
    if len(text) > at + 1 + longest and '"' not in text[at + 1 : at + 1 + longest]:
        raise RequestError(422, unknown("field", text[at + 1 : at + 1 + longest + 40], names))
    name, at = _DECODER.raw_decode(text, at)
    if name not in names:
        raise RequestError(422, unknown("field", name, names))
    at = _skip_blanks(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, _skip_blanks(text, at + 1)


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _constant(name: str) -> NoReturn:
    raise RequestError(400, f"{name} is not a JSON number; leave it out")


def _number(digits: str) -> int | float:
    value = float(digits)
    return int(value) if value.is_integer() else value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise _repeated(name)
        fields[name] = value
    return fields


def _repeated(name: str) -> RequestError:
    return RequestError(400, f"{shorten(name)!r} is given twice; give it once")


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_constant, object_pairs_hook=_object)
