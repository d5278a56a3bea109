"""The host names that a service answers to, and whether an address is a loopback address."""

import ipaddress
from collections.abc import Collection

from regard.viz.html.security import LOCAL_NAMES


def loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names(host: str, allowed: Collection[str]) -> frozenset[str] | None:
    """The names of a service that listens at `host`, or None for any name; "*.example.org" allows all subdomains."""
    for name in allowed:
        if "*" in name.removeprefix("*."):
            raise ValueError(f"an allowed host may have '*.' at its beginning only, got {name!r}; try '*.example.org'")
    if not loopback(host) and not allowed:
        return None
    local = (*LOCAL_NAMES, host) if loopback(host) else (host,)
    return frozenset(name.lower().strip("[]") for name in (*local, *allowed))
