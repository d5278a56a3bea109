"""What every server of a page needs against other sites: response headers, and the name in a Host header."""

from urllib.parse import urlsplit

# no other site may read, embed or guess the type of an answer, and no cache keeps it
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


def host_name(header: str) -> str:
    """The name or address in a Host header, in lower case and without its port; "" if the header is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""
