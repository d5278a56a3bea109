"""Protection of local servers from other sites: response headers and the check of the Host header."""

import ipaddress
from urllib.parse import urlsplit

# no other site may read, embed or guess the type of an answer, and no cache keeps it
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
# the names of this machine in a Host header
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str:
    """The name or address in a Host header, in lower case and without its port; "" if the header is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def names_this_machine(header: str, host: str) -> bool:
    """Whether a Host header names a server that listens at `host`: by that name, as localhost, or by any address.

    A site whose name was made to resolve to this machine (DNS rebinding) sends its own name and is refused.
    """
    name = host_name(header)
    if name in LOCAL_NAMES or name == host.lower():
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
