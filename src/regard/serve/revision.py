"""Revision: the models of a service between two reloads; ModelExchange: passes each request to the present revision.

    exchange = ModelExchange(make_app, metrics)
    exchange.present(exchange.revision(models, tokens))
    with exchange:                                              its models answer
        exchange.present(exchange.revision(others, tokens))     between two requests

A request is answered by the revision that it began with. The models of a revision that was replaced answer the requests
that it still has, then their threads end.
"""

import gc
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.batcher import Batcher
from regard.serve.client_limits import ClientLimits
from regard.serve.http.metrics import Metrics
from regard.serve.served_model import ServedModel

MakeApp = Callable[[Mapping[ServedModel, Batcher], Mapping[str, str]], tuple[ASGIApp, Collection[str]]]


@dataclass(eq=False)
class Revision:
    """The app of some models, its paths, and the number of requests that it answers now."""

    batchers: Mapping[ServedModel, Batcher]
    tokens: Mapping[str, str]
    app: ASGIApp
    paths: frozenset[str]
    open_requests: int = 0

    @property
    def models(self) -> Sequence[ServedModel]:
        return list(self.batchers)


class ModelExchange:
    """An ASGI app whose models can be exchanged between two requests; all methods but `revision` belong to the thread
    of the event loop."""

    def __init__(self, make_app: MakeApp, metrics: Metrics) -> None:
        self._make_app, self._metrics = make_app, metrics
        self.on_failure: Callable[[], object] = lambda: None  # called by the thread of a model that ends by an error
        self._revisions: list[Revision] = []  # the present one is the last; the others still have requests
        self._closing: list[threading.Thread] = []
        self.has_failed = False  # whether the thread of a model ended by an error
        self._is_open = False
        self.lifespan_app = Starlette(lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        with self:
            yield

    def __enter__(self) -> "ModelExchange":
        for batcher in self.batchers:
            batcher.__enter__()
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all models; each answers the requests that it has."""
        self._is_open = False
        for batcher in {batcher for revision in self._revisions for batcher in revision.batchers.values()}:
            batcher.__exit__()
        for thread in self._closing:
            thread.join()

    @property
    def current(self) -> Revision:
        """The revision that new requests are passed to."""
        return self._revisions[-1]

    @property
    def batchers(self) -> list[Batcher]:
        """Those of the present revision."""
        return list(self.current.batchers.values())

    @property
    def is_stuck(self) -> bool:
        return any(batcher.is_stuck for batcher in self.batchers)

    def revision(self, models: Sequence[ServedModel], tokens: Mapping[str, str]) -> Revision:
        """A revision of these models, none of which answers yet; one that is served now keeps its queue and thread.

        It may be made in any thread, which takes longer than exchanging it.
        """
        before = self.current.batchers if self._revisions else {}
        batchers = {model: before.get(model) or self._batcher(model) for model in models}
        app, paths = self._make_app(batchers, tokens)
        return Revision(batchers, tokens, app, frozenset(paths))

    def _batcher(self, model: ServedModel) -> Batcher:
        limits = model.limits
        batcher = Batcher(
            model.endpoint,
            self._metrics.of(model.name),
            batch=limits.batch,
            waiting=limits.waiting,
            seconds=limits.seconds,
            clients=ClientLimits(limits.client_waiting, limits.client_seconds),
        )
        batcher.on_failure = self._fail
        return batcher

    def _fail(self) -> None:
        self.has_failed = True
        self.on_failure()

    def present(self, revision: Revision) -> None:
        """Passes new requests to this revision."""
        served = self.batchers if self._is_open else []
        for model, batcher in revision.batchers.items():
            if self._is_open and batcher not in served:
                batcher.__enter__()
            self._metrics.of(model.name).read_waiting(lambda batcher=batcher: batcher.waiting)  # type: ignore[misc]
        self._revisions.append(revision)
        self._metrics.serve_versions({model.name: model.version for model in revision.models if model.version})
        self._retire()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.lifespan_app(scope, receive, send)
            return
        revision = self.current
        revision.open_requests += 1
        try:
            await revision.app(scope, receive, send)
        finally:
            revision.open_requests -= 1
            self._retire()

    def _retire(self) -> None:
        """Ends the models that no revision with requests has any more."""
        kept = [each for each in self._revisions if each.open_requests or each is self.current]
        if len(kept) == len(self._revisions):
            return
        used = {batcher for revision in kept for batcher in revision.batchers.values()}
        unused = {batcher for revision in self._revisions for batcher in revision.batchers.values()} - used
        self._revisions = kept
        self._closing = [thread for thread in self._closing if thread.is_alive()]
        if unused:
            # not in the event loop: a batch that nobody waits for may still run
            self._closing.append(threading.Thread(target=_end, args=(unused,), name="regard-retire", daemon=True))
            self._closing[-1].start()


def _end(batchers: set[Batcher]) -> None:
    for batcher in batchers:
        batcher.__exit__()
    batchers.clear()
    gc.collect()  # the app of a revision refers to itself, and to the weights
