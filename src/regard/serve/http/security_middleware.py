"""Door: who may come in, and what every answer carries. All requests pass here, counted and timed."""

import asyncio
import time
from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.metrics import Metrics
from regard.viz.html.page import content_security_policy
from regard.viz.html.security import SECURITY_HEADERS, host_name

# A body that is refused is read so far and thrown away: a client that still sends could not read why.
_DRAINED = 64_000_000
# Nothing from elsewhere, no frame around it, nothing kept.
_HEADERS = {
    "content-security-policy": content_security_policy(
        "'self'", "'self'", "connect-src 'self'", "img-src data:", "frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    **SECURITY_HEADERS,
}
# takes a line for each request, without its text
Log = Callable[[str], None]


class SecurityMiddleware:
    """Refuses what a page of another site could have sent in the name of who sits here.

    A name that is not ours means that somebody's DNS points at this machine (rebinding); an Origin that is not the Host
    means that another site's script asks.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: frozenset[str] | None,
        paths: Collection[str],
        limits: Limits,
        metrics: Metrics,
        log: Log | None,
    ) -> None:
        self.app, self.names, self.paths = app, names, paths
        self.limits, self.metrics, self.log = limits, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        visit = _RequestContext(scope, receive, send, start + self.limits.arrival)
        try:
            try:
                self._check(scope["method"], Headers(scope=scope))
            except RequestError as refused:
                await visit.refuse(refused)
                return
            await self.app(scope, visit.receive, visit.send)
        finally:
            self._count(scope, visit.status, time.perf_counter() - start)

    def _check(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self.names is not None and host_name(host) not in self.names:
            raise RequestError(
                403,
                f"the service does not go by the name {host_name(host)[:80]!r}; if it should, "
                "start it with --allow-host",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise RequestError(
                403, f"the page of {origin[:80]!r} may not ask here; ask from a program, or from the page at /"
            )
        if method == "POST" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RequestError(403, "another site may not ask here; ask from a program, or from the page at /")

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.request(path, status, seconds)
        if self.log is not None:
            at = time.strftime("%Y-%m-%d %H:%M:%S")
            self.log(f"{at} {scope['method']} {path} {status} {1e3 * seconds:.1f} ms")


class _RequestContext:
    """One request: whether its body came to its end, and with which status it was answered (499: nobody waited)."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, until: float) -> None:
        self._receive, self._send, self._until = receive, send, until
        headers = Headers(scope=scope)
        self._over = "content-length" not in headers and "transfer-encoding" not in headers
        self._expects = "expect" in headers
        self.status = 499

    async def receive(self) -> Message:
        message = await self._receive()
        self._over = self._over or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if not self._over:
                headers["connection"] = "close"
                await self._drain()
        await self._send(message)

    async def _drain(self) -> None:
        # one who asks before sending need not send at all
        left = self._until - time.perf_counter()
        if self._expects or left <= 0:
            return
        drained = 0
        try:
            async with asyncio.timeout(left):
                while not self._over and drained < _DRAINED:
                    drained += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return

    async def refuse(self, refused: RequestError) -> None:
        headers = [(b"content-type", b"application/json")]
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": refused.body()})
