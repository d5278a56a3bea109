"""Parses a request body as one JSON object: strict UTF-8, known names, each once.

204.0 and 2.04e2 are the integer 204, as JSON Schema counts them.

The fields of the object are parsed one by one, and the first unknown name ends it: a megabyte behind it is not parsed,
which would take the time of all other requests.
"""

import json
import re
from collections.abc import Collection
from typing import NoReturn

from regard.common.wording import shortened
from regard.serve.errors import RequestError, kind
from regard.serve.http.body_models import unknown

_BLANKS = re.compile(r"[ \t\n\r]*")
# characters of a letter that is written as an escape, \u0061
_ESCAPE = 6


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
                raise repeated(name)
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


def parse_scalar(text: str) -> object:
    """The JSON number, true or false in a text, or the text itself if it is none of them."""
    try:
        value = _DECODER.decode(text)
    except (RequestError, ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def _number(digits: str) -> int | float:
    value = float(digits)
    return int(value) if value.is_integer() else value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise repeated(name)
        fields[name] = value
    return fields


def repeated(name: str) -> RequestError:
    return RequestError(400, f"{shortened(name, 40)} is given twice; give it once")


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_constant, object_pairs_hook=_object)
