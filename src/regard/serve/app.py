"""The FastAPI application: a page, POST /v1/<task>, GET /v1/model, /health, /metrics, /openapi.json."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from regard import __version__
from regard.inference.endpoint import Endpoint, Schema, Unpack
from regard.inference.limits import Limits
from regard.serve.batcher import Batcher
from regard.serve.errors import RequestError, error_body
from regard.serve.event_stream import event_stream
from regard.serve.http.body_models import ErrorAnswer, validate
from regard.serve.http.json_body import read
from regard.serve.http.metrics import CONTENT_TYPE, Metrics
from regard.serve.http.security_middleware import Log, SecurityMiddleware
from regard.serve.http.trusted_host import allowed_names
from regard.serve.pages import assets

_ERRORS = {
    400: "The body is not JSON in UTF-8.",
    403: "The request comes from another site, or names a host that is not allowed.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The content type is not application/json.",
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


def build(
    endpoint: Endpoint,
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    allowed: Collection[str] = (),
    log: Log | None = None,
) -> SecurityMiddleware:
    """The application of one endpoint for a server that listens at `host`."""
    metrics = Metrics(endpoint.unit)
    batcher = Batcher(endpoint, metrics, batch=limits.batch, waiting=limits.waiting)
    metrics.read_waiting(lambda: batcher.waiting)

    # two images are decoded at a time: each may take much memory
    unpack_pool = ThreadPoolExecutor(2, "regard-reading")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with batcher, unpack_pool:
            yield

    # FastAPI's documentation pages would load scripts from other sites
    app = FastAPI(
        title=endpoint.page.title, version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        redirect_slashes=False,
    )  # fmt: skip
    _routes(app, endpoint, limits, batcher, metrics, unpack_pool)
    _pages(app, endpoint)
    _errors(app)
    _answer_head(app)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    app.state.batcher, app.state.metrics = batcher, metrics
    return SecurityMiddleware(
        app, names=allowed_names(host, allowed), paths=paths, limits=limits, metrics=metrics, log=log
    )


def _routes(
    app: FastAPI,
    endpoint: Endpoint,
    limits: Limits,
    batcher: Batcher,
    metrics: Metrics,
    unpack_pool: ThreadPoolExecutor,
) -> None:
    schema = endpoint.schema  # a new class at every access

    @app.post(f"/v1/{endpoint.name}", **_documentation(schema, streams=hasattr(endpoint, "stream")))
    async def post(request: Request) -> Response:
        endpoint_request = endpoint.read(
            validate(schema.request, await read(request, limits, schema.request.model_fields))
        )
        if getattr(endpoint_request, "is_streamed", False):
            return event_stream(batcher, endpoint_request, limits.seconds)
        return _json(
            await _answer_in_time(
                request, _answer(endpoint_request, endpoint.unpack, batcher, unpack_pool), limits.seconds
            )
        )

    @app.get("/v1/model", summary="Description of the model and its limits")
    async def model() -> Response:
        return _json(_bytes(endpoint.model_info()))

    stopping: dict[int | str, dict[str, Any]] = {503: {"description": "The service is stopping.", "model": ErrorAnswer}}

    @app.get("/health", summary="Whether the model answers", responses=stopping)
    async def health() -> Response:
        if not batcher.is_alive:
            raise RequestError(503, "the service is stopping", retry=5)
        return _json(_bytes({"status": "ok"}))

    @app.get("/metrics", summary="Metrics in the text format of Prometheus", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)


async def _answer(
    endpoint_request: Any, unpack: Unpack | None, batcher: Batcher, unpack_pool: ThreadPoolExecutor
) -> bytes:
    """The answer, however long it takes; if it is cancelled, a request that has not begun never begins."""
    if unpack is not None:
        cancelled = threading.Event()
        with batcher.unpacking(endpoint_request.count):
            try:
                endpoint_request = await asyncio.get_running_loop().run_in_executor(
                    unpack_pool, unpack, endpoint_request, cancelled.is_set
                )
            finally:
                cancelled.set()
    job = batcher.submit(endpoint_request)
    try:
        return await asyncio.wrap_future(job.answer)
    finally:
        batcher.cancel(job)


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


def _pages(app: FastAPI, endpoint: Endpoint) -> None:
    pages = assets.files(endpoint.page)

    def page_handler(content: bytes, media_type: str) -> Any:
        async def page() -> Response:
            return Response(content, media_type=media_type)

        return page

    for path, (content, media_type) in pages.items():
        app.get(path, include_in_schema=False)(page_handler(content, media_type))


def _answer_head(app: FastAPI) -> None:
    """HEAD wherever there is GET; the server omits the body. FastAPI would document each as an operation of its own."""
    app.openapi()  # kept by the app
    for route in app.routes:
        if isinstance(route, APIRoute) and route.methods is not None and "GET" in route.methods:
            route.methods.add("HEAD")


def _errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> Response:
        after = {} if error.retry is None else {"retry-after": str(error.retry)}
        return Response(error.body(), error.status, after, "application/json")

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        sentence = f"there is no {request.method} {request.url.path[:80]} here; /openapi.json lists all paths"
        return Response(error_body(sentence), error.status_code, error.headers, "application/json")

    @app.exception_handler(Exception)
    async def server_error(_: Request, __: Exception) -> Response:
        return Response(error_body("the service failed, which is its fault; see its log"), 500, {}, "application/json")


def _documentation(schema: Schema, streams: bool) -> dict[str, Any]:
    errors = {status: {"description": description, "model": ErrorAnswer} for status, description in _ERRORS.items()}
    # json_body reads the body, because FastAPI's own reading has no limits
    body = {"required": True, "content": {"application/json": {"schema": schema.request.model_json_schema()}}}
    answers: dict[str, Any] = {"description": "The answers.", "model": schema.answer}
    if streams:
        answers["content"] = {"text/event-stream": {"schema": _EVENT}}
    return {
        "summary": schema.summary,
        "responses": {200: answers, **errors},
        "openapi_extra": {"requestBody": body},
    }


def _bytes(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")
