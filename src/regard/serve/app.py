"""The FastAPI application: the routes of its models, their index, health, /metrics, /openapi.json and /docs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from fastapi import Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from regard import __version__
from regard.serve.access import check_origin, check_token
from regard.serve.batcher import FAILED, Batcher
from regard.serve.errors import FAULT, STOPPING, RequestError, error_body
from regard.serve.http.bearer_token import BearerToken
from regard.serve.http.metrics import CONTENT_TYPE, Metrics
from regard.serve.http.reserved_connections import HEALTH, LIVE, READY
from regard.serve.http.security_middleware import Log, SecurityMiddleware
from regard.serve.http.trusted_host import allowed_names
from regard.serve.model_routes import UNAUTHORIZED, ModelRoutes, add_files, error_answers, json_response, to_bytes
from regard.serve.pages import assets
from regard.serve.revision import ModelExchange
from regard.serve.served_model import ServedModel


def build(
    models: Sequence[ServedModel],
    *,
    host: str = "127.0.0.1",
    allowed: Collection[str] = (),
    origins: Collection[str] = (),
    tokens: Mapping[str, str] = MappingProxyType({}),
    log: Log | None = None,
) -> SecurityMiddleware:
    """The application of these models for a server that listens at `host`; its `app` takes other models later.

    `allowed` are further host names of the service, `origins` those of pages of other sites that may ask it, and one of
    the `tokens`, by their names, must be sent with every request that computes or describes a model, or reads the
    metrics.
    """
    metrics = Metrics({model.name: model.endpoint.unit for model in models})
    # two images are decoded at a time: each may take much memory
    unpack_pool = ThreadPoolExecutor(2, "regard-reading")

    def make_app(batchers: Mapping[ServedModel, Batcher], tokens: Mapping[str, str]) -> tuple[FastAPI, Collection[str]]:
        guards = [Depends(BearerToken(tokens))] if tokens else []
        routes = [ModelRoutes(model, batcher, metrics, guards) for model, batcher in batchers.items()]
        return _app(routes, unpack_pool, metrics, health)

    exchange = ModelExchange(make_app, metrics)
    service = SecurityMiddleware(
        exchange,
        names=allowed_names(host, allowed),
        origins=[check_origin(origin) for origin in origins],
        paths=lambda: exchange.current.paths,
        arrival=max(model.limits.arrival for model in models),
        metrics=metrics,
        log=log,
    )
    health = Health(exchange, lambda: service.is_stopping)
    exchange.present(exchange.revision(models, {name: check_token(token) for name, token in tokens.items()}))
    return service


def _app(
    routes: Sequence[ModelRoutes], unpack_pool: ThreadPoolExecutor, metrics: Metrics, health: "Health"
) -> tuple[FastAPI, Collection[str]]:
    """The app of these models, and its paths."""
    # FastAPI's documentation pages would load scripts from other sites
    title = routes[0].model.endpoint.page.title if len(routes) == 1 else "Models"
    app = FastAPI(title=title, version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    for each in routes:
        each.add(app, unpack_pool)
    _service_routes(app, routes, metrics, health)
    if any(each.model.name for each in routes):
        titles = {each.model.name: each.model.endpoint.page.title for each in routes}
        add_files(app, assets.index_files(titles))
    add_files(app, assets.documentation_files(title))
    _errors(app, metrics)
    _answer_head(app)
    return app, {route.path for route in app.routes if hasattr(route, "path")}


class Health:
    """Checks of a service: the error that each of its three paths answers with, or None."""

    def __init__(self, exchange: ModelExchange, is_stopping: Callable[[], bool]) -> None:
        self._exchange, self._is_stopping = exchange, is_stopping

    def liveness_error(self) -> RequestError | None:
        """Whether a new process would help: a thread of a model has ended, or a call of it does not end."""
        if self._exchange.has_failed:
            return RequestError(503, FAILED, retry=5, cause="failed")
        if self._exchange.is_stuck:
            return RequestError(503, "a model does not end a call that nobody waits for", retry=5, cause="failed")
        return None

    def error(self) -> RequestError | None:
        """Whether the service answers at all."""
        if (error := self.liveness_error()) is not None:
            return error
        if self._is_stopping() or not all(batcher.is_alive for batcher in self._exchange.batchers):
            return RequestError(503, STOPPING, retry=5, cause="stopping")
        return None

    def readiness_error(self) -> RequestError | None:
        """Whether further requests should be sent here."""
        if (error := self.error()) is not None:
            return error
        if any(batcher.is_full for batcher in self._exchange.batchers):
            return RequestError(503, "the queue of a model is full; send requests elsewhere", retry=1, cause="queue")
        return None


def _service_routes(app: FastAPI, routes: Sequence[ModelRoutes], metrics: Metrics, health: Health) -> None:
    def add_check(path: str, summary: str, failing: str, check: Callable[[], RequestError | None]) -> None:
        @app.get(path, summary=summary, responses=error_answers({503: failing}), name=path)
        async def answer() -> Response:
            if (error := check()) is not None:
                raise error
            return json_response(to_bytes({"status": "ok"}))

    add_check(HEALTH, "Whether the service answers", "The service is stopping, or a model failed.", health.error)
    add_check(
        LIVE, "Whether the process works", "A model failed, or hangs: start the service again.", health.liveness_error
    )
    add_check(
        READY,
        "Whether to send requests",
        "Not now: it stops, a model failed, or a queue is full.",
        health.readiness_error,
    )

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


def _errors(app: FastAPI, metrics: Metrics) -> None:
    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> Response:
        metrics.reject(error)
        return Response(error.body(), error.status, error.headers, "application/json")

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        metrics.reject(RequestError(404, ""))
        sentence = f"there is no {request.method} {request.url.path[:80]} here; /openapi.json lists all paths"
        return Response(error_body(sentence), error.status_code, error.headers, "application/json")

    @app.exception_handler(Exception)
    async def server_error(_: Request, __: Exception) -> Response:
        metrics.reject(RequestError(500, FAULT))
        return Response(error_body(FAULT), 500, {}, "application/json")
