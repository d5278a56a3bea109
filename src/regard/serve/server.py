"""Runs the service with uvicorn on a socket, until a signal stops it; SIGHUP exchanges its models."""

import dataclasses
import logging
import math
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from regard.inference.limits import Limits
from regard.serve.errors import missing_library
from regard.serve.served_model import ServedModel

if TYPE_CHECKING:
    from regard.serve.draining_server import DrainingServer
    from regard.serve.http.security_middleware import Log
    from regard.serve.reloading import Reload


class ModelFailed(Exception):
    """The thread of a model ended by an error, and the service with it."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise ValueError(f"host {host!r} is no address of this machine; try 127.0.0.1") from error
        raise ValueError(
            f"port {port} of {host} cannot be listened at ({error.strerror}); try --port 0, which takes a free one"
        ) from error


def address(at: socket.socket) -> str:
    host, port = at.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(
    models: Sequence[ServedModel],
    *,
    host: str,
    allowed: Collection[str] = (),
    origins: Collection[str] = (),
    tokens: Mapping[str, str] = MappingProxyType({}),
    log: "Log | None" = None,
    reload: "Reload | None" = None,
    note: Callable[[str], object] = lambda sentence: None,
) -> "DrainingServer":
    """The uvicorn server of these models: `run(sockets=[…])` serves until `should_exit` is set, then answers the open
    requests.

    `reload` makes the models and tokens of every reload that `request_reload` asks for; `note` takes sentences about
    it. The other options are those of `regard.serve.app.build`.
    """
    try:
        import uvicorn

        from regard.serve.app import build
        from regard.serve.draining_server import DrainingServer
        from regard.serve.http.h11_timeouts import Connection
        from regard.serve.reloading import Reloader
    except ImportError as error:
        raise missing_library() from error

    class Limited(Connection):
        pass

    limits = _connection_limits([model.limits for model in models])
    Limited.limits, Limited.lingering, Limited.reserved = limits, set(), {}
    # errors go to stderr; requests are not logged, because their texts are private
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of characters of forms
    app = build(models, host=host, allowed=allowed, origins=origins, tokens=tokens, log=log)
    reloader = None if reload is None else Reloader(app.app, reload, app.metrics, note)
    Limited.reject = app.metrics.reject
    timeout = math.ceil(limits.seconds + limits.arrival) + 1
    config = uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    return DrainingServer(config, app, reloader, timeout)


def _connection_limits(limits: Sequence[Limits]) -> Limits:
    """The limits of connections: the longest times and the fewest connections of all models."""
    return dataclasses.replace(
        limits[0],
        seconds=max(each.seconds for each in limits),
        arrival=max(each.arrival for each in limits),
        connections=min(each.connections for each in limits),
        client_connections=min((each.client_connections for each in limits if each.client_connections), default=None),
    )


def serve(running: "DrainingServer", at: socket.socket, ready: Callable[[], None] = lambda: None) -> int:
    """Runs a `server` until Ctrl-C or SIGTERM, then answers the open requests; a second Ctrl-C does not wait.

    Returns the number of requests; raises ModelFailed if the thread of a model ended by an error.
    `ready` is called when the service can be reached and stopped.
    """

    def stop() -> None:
        running.should_exit = True

    running.exchange.on_failure = stop
    with _handled_signals(running):
        ready()
        running.run(sockets=[at])
    if running.exchange.has_failed:
        raise ModelFailed
    if running.force_exit:
        raise KeyboardInterrupt
    return int(running.server_state.total_requests)


@contextmanager
def _handled_signals(running: "DrainingServer") -> Iterator[None]:
    """Stops the server in order on SIGINT and SIGTERM, also before uvicorn handles them, and when it raises them again
    at its end; SIGHUP reloads."""

    def stop(number: int, frame: object) -> None:
        running.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGHUP"):
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda number, frame: running.request_reload())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
