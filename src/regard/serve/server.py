"""Runs the service with uvicorn on a socket, until a signal stops it."""

import asyncio
import dataclasses
import logging
import math
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.inference.limits import Limits
from regard.serve.errors import missing_library
from regard.serve.served_model import ServedModel

if TYPE_CHECKING:
    import uvicorn

    from regard.serve.batcher import Batcher
    from regard.serve.http.security_middleware import Log


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
    token: str | None = None,
    log: "Log | None" = None,
) -> "uvicorn.Server":
    """The uvicorn server of these models: `run(sockets=[…])` serves until `should_exit` is set, then answers the open
    requests. The other options are those of `regard.serve.app.build`."""
    try:
        import uvicorn

        from regard.serve.app import build
        from regard.serve.http.h11_timeouts import Connection
    except ImportError as error:
        raise missing_library() from error

    class Limited(Connection):
        pass

    class DrainingServer(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Refuses new requests until the open ones are answered, so that /health says 503 meanwhile; then stops."""
            app.is_stopping = True
            pending, end = list(self.server_state.tasks), time.monotonic() + timeout
            while not self.force_exit and time.monotonic() < end and not all(task.done() for task in pending):
                await asyncio.sleep(0.05)
            self.config.timeout_graceful_shutdown = math.ceil(max(end - time.monotonic(), 1))
            await super().shutdown(sockets)

    limits = _connection_limits([model.limits for model in models])
    Limited.limits, Limited.lingering, Limited.reserved = limits, set(), {}
    # errors go to stderr; requests are not logged, because their texts are private
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of characters of forms
    app = build(models, host=host, allowed=allowed, origins=origins, token=token, log=log)
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
    return DrainingServer(config)


def _connection_limits(limits: Sequence[Limits]) -> Limits:
    """The limits of connections: the longest times and the fewest connections of all models."""
    return dataclasses.replace(
        limits[0],
        seconds=max(each.seconds for each in limits),
        arrival=max(each.arrival for each in limits),
        connections=min(each.connections for each in limits),
    )


def serve(running: "uvicorn.Server", at: socket.socket, ready: Callable[[], None] = lambda: None) -> int:
    """Runs a `server` until Ctrl-C or SIGTERM, then answers the open requests; a second Ctrl-C does not wait.

    Returns the number of requests; raises ModelFailed if the thread of a model ended by an error.
    `ready` is called when the service can be reached and stopped.
    """
    batchers: list[Batcher] = running.config.app.app.state.batchers  # type: ignore[union-attr]

    def stop() -> None:
        running.should_exit = True

    for batcher in batchers:
        batcher.on_failure = stop
    with _stop_on_signals(running):
        ready()
        running.run(sockets=[at])
    if any(batcher.has_failed for batcher in batchers):
        raise ModelFailed
    if running.force_exit:
        raise KeyboardInterrupt
    return int(running.server_state.total_requests)


@contextmanager
def _stop_on_signals(running: "uvicorn.Server") -> Iterator[None]:
    """Stops the server in order on SIGINT and SIGTERM, also before uvicorn handles them, and when it raises them again
    at its end."""

    def stop(number: int, frame: object) -> None:
        running.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
