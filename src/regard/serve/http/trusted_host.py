"""TrustedHost: whether the Host header of a request names this service; the host names that a service answers to."""

from collections.abc import Collection

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import Message, Receive, Scope, Send

from regard.viz.html.security import LOCAL_NAMES, is_loopback

_ACCEPTED = "regard.trusted_host"


class TrustedHost:
    """Compares Host headers with names by starlette's TrustedHostMiddleware; without names, every host is trusted.

    The middleware answers other hosts by itself, with status 400 and plain text. Every error of the service is JSON
    with one sentence, so that only its decision is taken, and the answer is left to the caller.
    """

    def __init__(self, names: Collection[str] | None) -> None:
        # the Host header writes an IPv6 address in brackets
        patterns = None if names is None else [f"[{name}]" if ":" in name else name for name in names]
        self._middleware = TrustedHostMiddleware(_accept, patterns, www_redirect=False)

    async def accepts(self, scope: Scope) -> bool:
        """Whether the request of this scope names a trusted host."""
        copy = {**scope, _ACCEPTED: False}
        await self._middleware(copy, _receive_nothing, _discard)
        return bool(copy[_ACCEPTED])


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    scope[_ACCEPTED] = True


async def _receive_nothing() -> Message:
    return {"type": "http.disconnect"}


async def _discard(message: Message) -> None:
    """Drops a part of the answer of the middleware."""


def allowed_names(host: str, allowed: Collection[str]) -> frozenset[str] | None:
    """The names of a service that listens at `host`, or None for any name; "*.example.org" allows all subdomains."""
    for name in allowed:
        if "*" in name.removeprefix("*."):
            raise ValueError(f"an allowed host may have '*.' at its beginning only, got {name!r}; try '*.example.org'")
    if not is_loopback(host) and not allowed:
        return None
    local = (*LOCAL_NAMES, host) if is_loopback(host) else (host,)
    return frozenset(name.lower().strip("[]") for name in (*local, *allowed))
