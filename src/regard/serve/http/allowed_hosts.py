"""Names of the service, and who reaches it by them."""

import ipaddress
from collections.abc import Collection

_LOCAL = ("localhost", "127.0.0.1", "::1")


def loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names(host: str, allowed: Collection[str]) -> frozenset[str] | None:
    """The names that the service goes by when it listens at `host`, or None: any."""
    if not loopback(host) and not allowed:
        return None
    here = (*_LOCAL, host) if loopback(host) else (host,)
    return frozenset(name.lower().strip("[]") for name in (*here, *allowed))
