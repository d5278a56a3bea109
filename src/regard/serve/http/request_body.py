"""BodyReader: the fields of a request body, a JSON object or a form with files, with limits of size and time."""

import asyncio
from typing import Any

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.form_body import file_fields, form_schema, parse_form
from regard.serve.http.json_body import parse_object

_JSON, _FORM = "application/json", "multipart/form-data"


class BodyReader:
    """Reads bodies of a request model; a model with fields in base64 also takes forms, with files as they are."""

    def __init__(self, model: type[BaseModel], limits: Limits) -> None:
        self.schema, self.limits = model.model_json_schema(), limits
        self.types = [_JSON, *([_FORM] if file_fields(self.schema) else [])]

    def content_schemas(self) -> dict[str, Any]:
        """The content types with their schemas, for /openapi.json."""
        schemas = {_JSON: self.schema, _FORM: form_schema(self.schema)}
        return {name: {"schema": schemas[name]} for name in self.types}

    async def read(self, request: Request) -> dict[str, object]:
        """The fields of a body, by name; RequestError if it has none, or one of another name."""
        content_type = request.headers.get("content-type", "")
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in self.types:
            raise RequestError(
                415,
                f"the content type must be {' or '.join(self.types)}, got {content_type or 'none'!r}; "
                "set it for the body",
            )
        if encoding := request.headers.get("content-encoding"):
            raise RequestError(
                415, f"the body must not be compressed, got content-encoding {encoding!r}; send it as it is"
            )
        body = await _bytes(request, self.limits)
        if kind == _FORM:
            return await parse_form(body, request.headers, self.schema, self.limits.body)
        return parse_object(body, self.schema["properties"])


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
