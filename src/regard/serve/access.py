"""Checks of the tokens and the origins of a service, as its owner types them."""

import re
from collections.abc import Mapping
from pathlib import Path

# the name of the client in the state of a request, as its token says it
CLIENT = "regard.client"
# the name of a token that has none of its own
UNNAMED = "token"


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


def read_tokens(path: Path) -> Mapping[str, str]:
    """The tokens of a file by their names: one per line, behind its name and a blank if there are several.

    Empty lines and lines that begin with # say nothing. No error shows a token.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"--token-file {path} cannot be read ({reason}); name a file with the token") from error
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        *names, token = line.split()
        where = f"--token-file {path}, line {number}"
        if len(names) > 1:
            raise ValueError(f"{where} has {len(names) + 1} words; write a name, a blank and its token")
        name = names[0] if names else UNNAMED
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
            raise ValueError(f"{where}: the name must be up to 64 letters, digits, '.', '_' and '-', got {name[:80]!r}")
        if name in tokens:
            raise ValueError(f"{where}: {name!r} names two tokens; give each a name of its own")
        try:
            check_token(token)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if token in tokens.values():
            raise ValueError(f"{where}: {name!r} has the token of another name; make a new one")
        tokens[name] = token
    if not tokens:
        raise ValueError(f"--token-file {path} has no token; write one into it, or leave the option out")
    return tokens
