"""The FastAPI application: the routes of its models, their index, /health, /metrics, /openapi.json and /docs."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager

from fastapi import Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from regard import __version__
from regard.serve.access import check_origin, check_token
from regard.serve.batcher import FAILED
from regard.serve.errors import FAULT, STOPPING, RequestError, error_body
from regard.serve.http.bearer_token import BearerToken
from regard.serve.http.metrics import CONTENT_TYPE, Metrics
from regard.serve.http.reserved_connections import HEALTH
from regard.serve.http.security_middleware import Log, SecurityMiddleware
from regard.serve.http.trusted_host import allowed_names
from regard.serve.model_routes import UNAUTHORIZED, ModelRoutes, add_files, error_answers, json_response, to_bytes
from regard.serve.pages import assets
from regard.serve.served_model import ServedModel


def build(
    models: Sequence[ServedModel],
    *,
    host: str = "127.0.0.1",
    allowed: Collection[str] = (),
    origins: Collection[str] = (),
    token: str | None = None,
    log: Log | None = None,
) -> SecurityMiddleware:
    """The application of these models for a server that listens at `host`.

    `allowed` are further host names of the service, `origins` those of pages of other sites that may ask it, and
    `token` must be sent with every request that computes or describes a model, or reads the metrics.
    """
    metrics = Metrics({model.name: model.endpoint.unit for model in models})
    guards = [] if token is None else [Depends(BearerToken(check_token(token)))]
    routes = [ModelRoutes(model, metrics, guards) for model in models]
    # two images are decoded at a time: each may take much memory
    unpack_pool = ThreadPoolExecutor(2, "regard-reading")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            for each in routes:
                stack.enter_context(each.batcher)
            stack.enter_context(unpack_pool)
            yield

    # FastAPI's documentation pages would load scripts from other sites
    title = models[0].endpoint.page.title if len(models) == 1 else "Models"
    app = FastAPI(
        title=title, version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False
    )
    for each in routes:
        each.add(app, unpack_pool)
    _service_routes(app, routes, metrics, lambda: service.is_stopping)
    if any(model.name for model in models):
        add_files(app, assets.index_files({model.name: model.endpoint.page.title for model in models}))
    add_files(app, assets.documentation_files(title))
    _errors(app)
    _answer_head(app)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    app.state.batchers, app.state.metrics = [each.batcher for each in routes], metrics
    service = SecurityMiddleware(
        app,
        names=allowed_names(host, allowed),
        origins=[check_origin(origin) for origin in origins],
        paths=paths,
        arrival=max(model.limits.arrival for model in models),
        metrics=metrics,
        log=log,
    )
    return service


def _service_routes(
    app: FastAPI, routes: Sequence[ModelRoutes], metrics: Metrics, is_stopping: Callable[[], bool]
) -> None:
    stopping = error_answers({503: "The service is stopping, or a model failed."})

    @app.get(HEALTH, summary="Whether the service answers", responses=stopping)
    async def health() -> Response:
        if any(each.batcher.has_failed for each in routes):
            raise RequestError(503, FAILED, retry=5)
        if is_stopping() or not all(each.batcher.is_alive for each in routes):
            raise RequestError(503, STOPPING, retry=5)
        return json_response(to_bytes({"status": "ok"}))

    @app.get(
        "/metrics",
        summary="Metrics in the text format of Prometheus",
        response_class=PlainTextResponse,
        dependencies=routes[0].guards,
        responses=error_answers(UNAUTHORIZED) if routes[0].asks_token else {},
    )
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _answer_head(app: FastAPI) -> None:
    """HEAD wherever there is GET; the server omits the body. FastAPI would document each as an operation of its own."""
    app.openapi()  # kept by the app
    for route in app.routes:
        if isinstance(route, APIRoute) and route.methods is not None and "GET" in route.methods:
            route.methods.add("HEAD")


def _errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> Response:
        return Response(error.body(), error.status, error.headers, "application/json")

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        sentence = f"there is no {request.method} {request.url.path[:80]} here; /openapi.json lists all paths"
        return Response(error_body(sentence), error.status_code, error.headers, "application/json")

    @app.exception_handler(Exception)
    async def server_error(_: Request, __: Exception) -> Response:
        return Response(error_body(FAULT), 500, {}, "application/json")
