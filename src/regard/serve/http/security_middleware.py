"""SecurityMiddleware: refuses requests of other sites, sets security headers, and counts and logs every request."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.access import CLIENT
from regard.serve.errors import BUSY, FAULT, STOPPING, RequestError
from regard.serve.http.metrics import Metrics
from regard.serve.http.request_context import RequestContext
from regard.serve.http.reserved_connections import HEALTH_PATHS, is_reserved
from regard.serve.http.trusted_host import TrustedHost
from regard.viz.html.page import content_security_policy
from regard.viz.html.security import SECURITY_HEADERS, host_name

if TYPE_CHECKING:
    from regard.serve.revision import ModelExchange

_log = logging.getLogger("regard.serve")
# takes one line per request, without its text
Log = Callable[[str], None]
# seconds for the body of a request that is refused because the service is full or stops
_LAST_SECONDS = 1.0
REQUEST_ID = "x-request-id"
# an id that a proxy or a client chose; others are replaced, since the log prints them
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# headers of every answer: no resources of other sites, and no frame around the page
HEADERS = {
    "content-security-policy": content_security_policy(
        "'self'", "'self'", "connect-src 'self'", "img-src data:", "frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    **SECURITY_HEADERS,
}


class SecurityMiddleware:
    """Refuses requests that a page of another site may have sent from the browser of a user.

    A Host header with another name means that a DNS name of another site points at this machine (DNS rebinding); an
    Origin header that differs from the Host header, or a Sec-Fetch-Site header, that a script of another site sent the
    request. Starlette has a check of the Host header alone.

    Pages of `origins` may ask; starlette's CORSMiddleware tells their browsers.
    """

    def __init__(
        self,
        app: "ModelExchange",
        *,
        names: frozenset[str] | None,
        origins: Collection[str],
        paths: Callable[[], Collection[str]],
        arrival: float,
        metrics: Metrics,
        log: Log | None,
    ) -> None:
        self.app, self.trusted_host, self.paths = app, TrustedHost(names), paths
        self.is_stopping = False  # set by the server: new requests are refused while it answers the open ones
        self.origins = frozenset(origins)
        self.arrival, self.metrics, self.log = arrival, metrics, log
        self._answer: ASGIApp = app
        if self.origins:
            self._answer = CORSMiddleware(
                app,
                allow_origins=sorted(self.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["authorization", "content-type"],
                expose_headers=["retry-after", "www-authenticate", REQUEST_ID, "x-model-version"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        request_id = _request_id(scope)
        headers = {**HEADERS, REQUEST_ID: request_id}
        is_last = self.is_stopping or is_reserved(scope)  # no further request is read from the connection
        context = RequestContext(
            scope,
            receive,
            send,
            deadline=start + (min(self.arrival, _LAST_SECONDS) if is_last else self.arrival),
            headers={**headers, "connection": "close"} if is_last else headers,
        )
        try:
            error = await self._host_error(scope) or self._origin_error(scope) or self._capacity_error(scope)
            if error is not None:
                self.metrics.reject(error)
                await context.send_error(error)
                return
            await self._answer(scope, context.receive, context.send)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as failure:
            # starlette answers an Exception of a route before it raises it, but not a panic of an extension in Rust
            if context.has_started:
                _log.error("request %s failed", request_id)
                raise
            _log.error("request %s failed", request_id, exc_info=failure)
            self.metrics.reject(fault := RequestError(500, FAULT))
            await context.send_error(fault)
        finally:
            self._count(scope, context.status, time.perf_counter() - start, request_id)

    async def _host_error(self, scope: Scope) -> RequestError | None:
        if await self.trusted_host.accepts(scope):
            return None
        name = host_name(Headers(scope=scope).get("host", ""))[:80]
        return RequestError(
            403,
            f"the service does not go by the name {name!r}; if it should, start it with --allow-host",
            cause="host",
        )

    def _capacity_error(self, scope: Scope) -> RequestError | None:
        """The error of a request that comes too late or is too many; /health says in words of its own what is wrong."""
        if scope["path"] in HEALTH_PATHS:
            return None
        if self.is_stopping:
            return RequestError(503, STOPPING, retry=5, cause="stopping")
        return RequestError(503, BUSY, retry=1, cause="connections") if is_reserved(scope) else None

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        path = scope["path"] if scope["path"] in self.paths() else "other"
        self.metrics.request(path, status, seconds)
        if self.log is not None:
            client = f" {name}" if (name := scope.get("state", {}).get(CLIENT)) else ""
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            self.log(f"{now} {scope['method']} {path} {status} {1e3 * seconds:.1f} ms {request_id}{client}")

    def _origin_error(self, scope: Scope) -> RequestError | None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin in self.origins:
            return None
        if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
            return RequestError(
                403,
                f"the page of {origin[:80]!r} may not ask here; ask from a program, or from the page at /, "
                "or start the service with --allow-origin",
            )
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return RequestError(403, "another site may not ask here; ask from a program, or from the page at /")
        return None


def _request_id(scope: Scope) -> str:
    """The id that the request came with, if it is a short word; otherwise a new one."""
    request_id = Headers(scope=scope).get(REQUEST_ID, "")
    return request_id if _ID.fullmatch(request_id) else secrets.token_hex(8)
