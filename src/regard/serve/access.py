"""Checks of the tokens and the origins of a service, as its owner types them."""

import re


def check_origin(origin: str) -> str:
    """The origin of a page as browsers send it; ValueError if it is none."""
    if not re.fullmatch(r"https?://([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:\d+)?", origin):
        raise ValueError(
            f"an allowed origin must be a scheme, a host in lower case and maybe a port, got {origin!r}; "
            "try https://www.example.org"
        )
    return origin


def check_token(token: str) -> str:
    """The token; ValueError if a header cannot hold it."""
    if not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
        raise ValueError(
            "a token must be letters, digits and the signs - . _ ~ + /, at least one; "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        )
    return token
