"""ModelRoutes: the paths of one model, POST /v1/<task>, GET /v1/model and its page, and the batcher that answers."""

import asyncio
import json
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.responses import RedirectResponse

from regard.common.cancellation import cancelled_if, check_cancelled
from regard.inference.endpoint import Schema, Unpack
from regard.serve.access import CLIENT
from regard.serve.batcher import Batcher
from regard.serve.errors import RequestError
from regard.serve.event_stream import event_stream
from regard.serve.http.body_models import ErrorAnswer, validate
from regard.serve.http.metrics import Metrics
from regard.serve.http.request_body import BodyReader
from regard.serve.pages import assets
from regard.serve.served_model import ServedModel

# the header of answers that names the version of the model
VERSION = "x-model-version"
UNAUTHORIZED = {401: "The token is missing or wrong."}
_ERRORS = {
    400: "The body cannot be parsed: not JSON in UTF-8, or not a form.",
    403: "The request comes from another site, or names a host that is not allowed.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The content type is not one of those above.",
    422: "A field is wrong, unknown or beyond a limit.",
    429: "Too many requests wait; try again after Retry-After seconds.",
    500: "A fault of the service.",
    503: "No answer in time, or the service is stopping; try again after Retry-After seconds.",
}

_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "contentMediaType": "application/json"}},
    "required": ["data"],
}


class ModelRoutes:
    """The routes of a model that a batcher answers; `guards` are dependencies of the routes that compute or describe
    it."""

    def __init__(self, model: ServedModel, batcher: Batcher, metrics: Metrics, guards: Sequence[Any] = ()) -> None:
        self.model, self.batcher, self.metrics, self.guards = model, batcher, metrics, list(guards)
        self.headers = {VERSION: model.version} if model.version else {}

    def add(self, app: FastAPI, unpack_pool: ThreadPoolExecutor) -> None:
        endpoint, limits, prefix = self.model.endpoint, self.model.limits, self.model.prefix
        schema = endpoint.schema  # a new class at every access
        reader = BodyReader(schema.request, limits)
        tags: Any = [self.model.name] if self.model.name else None
        documentation = _documentation(schema, reader, streams=hasattr(endpoint, "stream"), asks_token=self.asks_token)

        @app.post(f"{prefix}/v1/{endpoint.name}", tags=tags, dependencies=self.guards, **documentation)
        async def post(request: Request) -> Response:
            endpoint_request = endpoint.read(validate(schema.request, await reader.read(request)))
            client = _client(request)
            if getattr(endpoint_request, "is_streamed", False):
                return event_stream(
                    self.batcher, endpoint_request, client, limits.seconds, self.headers, self.metrics.reject
                )
            answer = _answer(endpoint_request, client, endpoint.unpack, self.batcher, unpack_pool)
            return json_response(await _answer_in_time(request, answer, limits.seconds), self.headers)

        @app.get(
            f"{prefix}/v1/model",
            tags=tags,
            dependencies=self.guards,
            summary="Description of the model and its limits",
            responses=error_answers(UNAUTHORIZED) if self.asks_token else {},
        )
        async def model() -> Response:
            version = {"version": self.model.version} if self.model.version else {}
            return json_response(to_bytes({**endpoint.model_info(), **version}), self.headers)

        add_files(
            app, {f"{prefix}{path}": file for path, file in assets.files(endpoint.page, is_listed=bool(prefix)).items()}
        )
        if prefix:

            @app.get(prefix, include_in_schema=False)
            async def page_folder() -> Response:
                # relative, for a proxy that serves under a path of its own
                return RedirectResponse(f"{self.model.name}/")

    @property
    def asks_token(self) -> bool:
        return bool(self.guards)


def add_files(app: FastAPI, files: Mapping[str, tuple[bytes, str]]) -> None:
    """Routes of files that never change: path -> content and its type."""

    def handler(content: bytes, media_type: str) -> Any:
        async def file() -> Response:
            return Response(content, media_type=media_type)

        return file

    for path, (content, media_type) in files.items():
        app.get(path, include_in_schema=False)(handler(content, media_type))


def error_answers(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Statuses with their descriptions, for /openapi.json."""
    return {status: {"description": text, "model": ErrorAnswer} for status, text in descriptions.items()}


def _documentation(schema: Schema, reader: BodyReader, *, streams: bool, asks_token: bool) -> dict[str, Any]:
    errors = error_answers({**_ERRORS, **(UNAUTHORIZED if asks_token else {})})
    answers: dict[str, Any] = {"description": "The answers.", "model": schema.answer}
    if streams:
        answers["content"] = {"text/event-stream": {"schema": _EVENT}}
    return {
        "summary": schema.summary,
        "responses": {200: answers, **errors},
        # FastAPI's own reading of bodies has no limits
        "openapi_extra": {"requestBody": {"required": True, "content": reader.content_schemas()}},
    }


def _client(request: Request) -> str:
    """The name of the token of a request, or its address."""
    name = request.scope.get("state", {}).get(CLIENT)
    return name or (request.client.host if request.client else "")


async def _answer(
    endpoint_request: Any, client: str, unpack: Unpack | None, batcher: Batcher, unpack_pool: ThreadPoolExecutor
) -> bytes:
    """The answer, however long it takes; if it is cancelled, a request that has not begun never begins, and one
    that has ends at its next step."""
    if unpack is not None:
        cancelled = threading.Event()
        with batcher.unpacking(endpoint_request.count, client):
            try:
                endpoint_request = await asyncio.get_running_loop().run_in_executor(
                    unpack_pool, _unpack, unpack, endpoint_request, cancelled
                )
            finally:
                cancelled.set()
    job = batcher.submit(endpoint_request, client=client)
    try:
        return await asyncio.wrap_future(job.answer)
    finally:
        batcher.cancel(job)


def _unpack(unpack: Unpack, endpoint_request: Any, cancelled: threading.Event) -> Any:
    with cancelled_if(cancelled.is_set):
        check_cancelled()
        return unpack(endpoint_request)


async def _answer_in_time(request: Request, answer_task: Coroutine[Any, Any, bytes], seconds: float) -> bytes:
    """The answer, unless it takes too long or the client disconnects."""
    answer = asyncio.ensure_future(answer_task)
    disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
    tasks: set[asyncio.Future[Any]] = {answer, disconnect}
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return await answer
        if disconnect.done():
            raise RequestError(499, "the connection ended before the answer came")
        raise RequestError(503, f"no answer within {seconds:g} seconds; ask for less, or ask again later", retry=5)
    finally:
        disconnect.cancel()
        answer.cancel()
        await asyncio.wait({answer})  # it leaves the queue before the error is sent


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def to_bytes(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def json_response(content: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(content, headers=headers, media_type="application/json")
