"""Running: the service on a socket, from its first request to the last after it was told to stop."""

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
    """A socket that listens; port 0 takes a free one."""
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
    served: Endpoint, limits: Limits, *, host: str, allowed: Collection[str] = (), log: "Log | None" = None
) -> "uvicorn.Server":
    """What runs the service: `run(sockets=[…])` until `should_exit` is set, then it answers what it has."""
    try:
        import uvicorn

        from regard.serve.app import build
        from regard.serve.http.h11_timeouts import Connection
    except ImportError as error:
        raise missing_library() from error

    class Limited(Connection):
        pass

    Limited.limits = limits
    # Faults go to stderr, requests nowhere: what people translate is theirs.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        build(served, limits, host=host, allowed=allowed, log=log),
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
    served: Endpoint,
    limits: Limits,
    at: socket.socket,
    *,
    host: str,
    allowed: Collection[str] = (),
    log: "Log | None" = None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Serves until Ctrl-C or SIGTERM, then answers what it has; a second Ctrl-C does not wait. How many requests.

    `ready` is called when it may be asked, and stopped.
    """
    running = server(served, limits, host=host, allowed=allowed, log=log)
    with _stopping(running):
        ready()
        running.run(sockets=[at])
    if running.force_exit:
        raise KeyboardInterrupt
    return int(running.server_state.total_requests)


@contextmanager
def _stopping(running: "uvicorn.Server") -> Iterator[None]:
    """Signals stop the service in an orderly way, also before uvicorn listens to them, and when it raises them again
    at its end."""

    def told(number: int, frame: object) -> None:
        running.should_exit = True

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
