"""The application: a page, POST /v1/<task>, GET /v1/model, /health, /metrics, /openapi.json."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from regard import __version__
from regard.inference.endpoint import Endpoint, Unpack
from regard.inference.limits import Limits
from regard.serve.batcher import Batcher
from regard.serve.errors import RequestError, error_body
from regard.serve.http import metrics
from regard.serve.http.allowed_hosts import names
from regard.serve.http.body_models import ErrorAnswer, validate
from regard.serve.http.json_body import read
from regard.serve.http.metrics import Metrics
from regard.serve.http.security_middleware import Log, SecurityMiddleware
from regard.serve.pages import assets

_ERRORS = {
    400: "The body is not JSON in UTF-8.",
    403: "Another site asks, or the service does not go by this name.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The body is not said to be application/json.",
    422: "A field is wrong, unknown or beyond a limit.",
    429: "Too many wait; ask again after Retry-After seconds.",
    500: "A fault of the service.",
    503: "No answer in time, or the service is stopping; ask again after Retry-After seconds.",
}


def build(
    served: Endpoint, limits: Limits, *, host: str = "127.0.0.1", allowed: Collection[str] = (), log: Log | None = None
) -> SecurityMiddleware:
    """The service of one task, as it listens at `host`."""
    counted = Metrics(served.counted)
    worker = Batcher(served, counted, batch=limits.batch, waiting=limits.waiting)
    counted.read_waiting(lambda: worker.waiting)

    # so many pictures are unpacked at a time: each may take a lot of memory
    reading = ThreadPoolExecutor(2, "regard-reading")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with worker, reading:
            yield

    # its own pages of documentation would load scripts from elsewhere
    app = FastAPI(
        title=served.face.title, version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        redirect_slashes=False,
    )  # fmt: skip
    _routes(app, served, limits, worker, counted, reading)
    _pages(app, served)
    _errors(app)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    app.state.worker, app.state.metrics = worker, counted
    return SecurityMiddleware(app, names=names(host, allowed), paths=paths, limits=limits, metrics=counted, log=log)


def _routes(
    app: FastAPI, served: Endpoint, limits: Limits, worker: Batcher, counted: Metrics, reading: ThreadPoolExecutor
) -> None:
    @app.post(f"/v1/{served.name}", **_documented(served))
    async def ask(request: Request) -> Response:
        asked = served.read(validate(served.schema.request, await read(request, limits)))
        return _json(await _waited(request, _answered(asked, served.unpack, worker, reading), limits.seconds))

    @app.get("/v1/model", summary="What the model is, and what it bears")
    async def model() -> Response:
        return _json(_bytes(served.about()))

    @app.get("/health", summary="Whether the model answers")
    async def health() -> Response:
        if not worker.alive:
            raise RequestError(503, "the service is stopping", retry=5)
        return _json(_bytes({"status": "ok"}))

    @app.get("/metrics", summary="Counts and times, as Prometheus reads them")
    async def numbers() -> Response:
        return Response(counted.text(), media_type=metrics.CONTENT_TYPE)


async def _answered(asked: Any, unpack: Unpack | None, worker: Batcher, reading: ThreadPoolExecutor) -> bytes:
    """The answer, however long it takes; cancelled, what was not begun is never begun."""
    if unpack is not None:
        over = threading.Event()
        with worker.unpacking(asked.count):
            try:
                asked = await asyncio.get_running_loop().run_in_executor(reading, unpack, asked, over.is_set)
            finally:
                over.set()
    job = worker.ask(asked)
    try:
        return await asyncio.wrap_future(job.answer)
    finally:
        worker.forget(job)


async def _waited(request: Request, answered: Coroutine[Any, Any, bytes], seconds: float) -> bytes:
    """The answer, unless it takes too long or nobody waits for it any more."""
    answer = asyncio.ensure_future(answered)
    gone = asyncio.ensure_future(_gone(request))
    either: set[asyncio.Future[Any]] = {answer, gone}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return await answer
        if gone.done():
            raise RequestError(499, "the connection ended before the answer came")
        raise RequestError(503, f"no answer within {seconds:g} seconds; ask for less, or ask again later", retry=5)
    finally:
        gone.cancel()
        answer.cancel()
        await asyncio.wait({answer})  # its place is free before anybody hears of it


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _pages(app: FastAPI, served: Endpoint) -> None:
    written = assets.files(served.face)

    def give(content: bytes, kind: str) -> Any:
        async def given() -> Response:
            return Response(content, media_type=kind)

        return given

    for path, (content, kind) in written.items():
        app.get(path, include_in_schema=False)(give(content, kind))


def _errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        after = {} if error.retry is None else {"retry-after": str(error.retry)}
        return Response(error.body(), error.status, after, "application/json")

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        sentence = f"there is no {request.method} {request.url.path[:80]} here; /openapi.json lists what there is"
        return Response(error_body(sentence), error.status_code, error.headers, "application/json")

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return Response(
            error_body("the service failed, which is its fault; its log tells more"), 500, {}, "application/json"
        )


def _documented(served: Endpoint) -> dict[str, Any]:
    schema = served.schema
    errors = {status: {"description": about, "model": ErrorAnswer} for status, about in _ERRORS.items()}
    # the body is read by json_body, whose limits FastAPI's own reading does not have
    body = {"required": True, "content": {"application/json": {"schema": schema.request.model_json_schema()}}}
    return {
        "summary": schema.summary,
        "responses": {200: {"description": "The answers.", "model": schema.answer}, **errors},
        "openapi_extra": {"requestBody": body},
    }


def _bytes(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")
