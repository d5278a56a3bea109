"""Reads a request body as one JSON object, with limits of size and time, strict UTF-8 and no repeated names."""

import asyncio
import json
from typing import NoReturn

from starlette.requests import ClientDisconnect, Request

from regard.inference.limits import Limits
from regard.serve.errors import RequestError, kind, shorten


async def read(request: Request, limits: Limits) -> dict[str, object]:
    """The JSON object in the body of a request; RequestError if there is none."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(
            415, f"the content type must be application/json, got {content_type or 'none'!r}; set it for the body"
        )
    if encoding := request.headers.get("content-encoding"):
        raise RequestError(415, f"the body must not be compressed, got content-encoding {encoding!r}; send it as it is")
    return parse_object(await _bytes(request, limits))


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


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in these bytes."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_constant, object_pairs_hook=_object)
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


def _constant(name: str) -> NoReturn:
    raise RequestError(400, f"{name} is not a JSON number; leave it out")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise RequestError(400, f"{shorten(name)!r} is given twice; give it once")
        fields[name] = value
    return fields
