"""A body as JSON: not too large, not too slow, UTF-8, one object, each name once, numbers that are numbers."""

import asyncio
import json
from typing import NoReturn

from starlette.requests import ClientDisconnect, Request

from regard.inference.limits import Limits
from regard.serve.errors import RequestError, kind, shortened


async def read(request: Request, limits: Limits) -> dict[str, object]:
    """The object that a request carries, or Refused."""
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(
            415, f"the content type must be application/json, got {said or 'none'!r}; say what the body is"
        )
    if coded := request.headers.get("content-encoding"):
        raise RequestError(415, f"the body must not be packed, got content-encoding {coded!r}; send it as it is")
    return parsed(await _bytes(request, limits))


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


def parsed(body: bytes) -> dict[str, object]:
    """The object that these bytes are."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_constant, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        where = f"byte 0x{body[error.start]:02x} at place {error.start + 1}"
        raise RequestError(400, f"the body must be UTF-8, but {where} is not; convert it first") from None
    except json.JSONDecodeError as error:
        sentence = f"the body must be JSON, but at line {error.lineno}, column {error.colno}: {error.msg}"
        raise RequestError(400, sentence) from None
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply; send one flat object") from None
    except ValueError:  # more digits than Python turns into a number
        raise RequestError(400, "the body holds a number of too many digits") from None
    if not isinstance(found, dict):
        raise RequestError(422, f"the body must be an object, got {kind(found)}; /openapi.json tells which")
    return found


def _constant(name: str) -> NoReturn:
    raise RequestError(400, f"{name} is no number of JSON; leave it out")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise RequestError(400, f"{shortened(name)!r} is given twice; give it once")
        found[name] = value
    return found
