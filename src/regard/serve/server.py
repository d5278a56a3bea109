"""Runs the service with uvicorn on a socket, until a signal stops it."""

import logging
import math
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.serve.errors import missing_library

if TYPE_CHECKING:
    import uvicorn

    from regard.serve.http.security_middleware import Log


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
    endpoint: Endpoint, limits: Limits, *, host: str, allowed: Collection[str] = (), log: "Log | None" = None
) -> "uvicorn.Server":
    """The uvicorn server: `run(sockets=[…])` serves until `should_exit` is set, then answers the open requests."""
    try:
        import uvicorn

        from regard.serve.app import build
        from regard.serve.http.h11_timeouts import Connection
    except ImportError as error:
        raise missing_library() from error

    class Limited(Connection):
        pass

    Limited.limits, Limited.lingering = limits, set()
    # errors go to stderr; requests are not logged, because their texts are private
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        build(endpoint, limits, host=host, allowed=allowed, log=log),
        http=Limited,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(limits.seconds + limits.arrival) + 1,
    )
    return uvicorn.Server(config)


def serve(
    endpoint: Endpoint,
    limits: Limits,
    at: socket.socket,
    *,
    host: str,
    allowed: Collection[str] = (),
    log: "Log | None" = None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Serves until Ctrl-C or SIGTERM, then answers the open requests; a second Ctrl-C does not wait.

    Returns the number of requests. `ready` is called when the service can be reached and stopped.
    """
    running = server(endpoint, limits, host=host, allowed=allowed, log=log)
    with _stop_on_signals(running):
        ready()
        running.run(sockets=[at])
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
