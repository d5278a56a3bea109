"""Parses a form (multipart/form-data) into the fields of a JSON object, for requests that hold files.

curl -F image=@three.png -F top=3 -F maps=true http://127.0.0.1:8080/v1/classify

A field that is base64 in JSON is a file here, or base64 again; a list is a field that is given several times; numbers,
true and false are written as in JSON.
"""

import base64
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from regard.serve.errors import RequestError
from regard.serve.http.body_models import unknown
from regard.serve.http.json_body import parse_scalar, repeated

# parts of a form; more are refused before they are parsed
_MAX_PARTS = 1000


def file_fields(schema: Mapping[str, Any]) -> list[str]:
    """The fields of a JSON schema that hold files in base64, alone or in a list."""
    return [name for name, field in schema["properties"].items() if "contentEncoding" in field.get("items", field)]


def form_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the same request as a form."""
    files = file_fields(schema)
    fields = {name: _file_schema(field) if name in files else field for name, field in schema["properties"].items()}
    return {**{key: value for key, value in schema.items() if key != "example"}, "properties": fields}


def _file_schema(field: Mapping[str, Any]) -> dict[str, Any]:
    if field.get("type") == "array":
        return {**field, "items": _file_schema(field["items"])}
    kept = {key: value for key, value in field.items() if key != "contentEncoding"}
    binary = {"format": "binary", "contentMediaType": "application/octet-stream", "description": "A file as it is."}
    return {**kept, **binary}


async def parse_form(body: bytes, headers: Headers, schema: Mapping[str, Any], size: int) -> dict[str, object]:
    """The fields of a form, as a JSON object of this schema has them; RequestError if it cannot be parsed."""
    parser = MultiPartParser(headers, _chunks(body), max_files=_MAX_PARTS, max_fields=_MAX_PARTS, max_part_size=size)
    parser.spool_max_size = size  # a larger file would be written to disk, and nothing of a request may be
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RequestError(400, f"the body must be a form: {error.message.rstrip('.')}") from None
    try:
        boundary = parse_options_header(headers["content-type"])[1][b"boundary"]
        # the parser leaves a part out that does not end
        if b"--" + boundary + b"--" not in body:
            raise RequestError(400, "the body must be a form: its end is missing; end it by its boundary and --")
        return await _fields(form, schema["properties"])
    finally:
        await form.close()


async def _fields(form: FormData, properties: Mapping[str, Any]) -> dict[str, object]:
    fields: dict[str, Any] = {}
    for name, part in form.multi_items():
        if name not in properties:
            raise RequestError(422, unknown("field", name, properties))
        field = properties[name]
        value = await _value(name, part, field.get("items", field))
        if field.get("type") == "array":
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise repeated(name)
        else:
            fields[name] = value
    return fields


async def _chunks(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _value(name: str, part: UploadFile | str, field: Mapping[str, Any]) -> object:
    if isinstance(part, UploadFile):
        if "contentEncoding" not in field:
            raise RequestError(422, f"{name} is no file; send its value as text")
        return base64.b64encode(await part.read()).decode()
    is_text = any(kind.get("type") == "string" for kind in field.get("anyOf", [field]))
    return part if is_text else parse_scalar(part)
