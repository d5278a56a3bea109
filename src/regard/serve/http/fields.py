"""The fields of a body, as every task reads them: known, of their type, within their limits."""

import difflib
from collections.abc import Collection, Mapping

from regard.serve.errors import RequestError, kind, short


def check(body: Mapping[str, object], known: Collection[str]) -> None:
    """Refuses a field that no request has."""
    for name in body:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise RequestError(422, f"unknown field {short(name)}; {hint}known are: {', '.join(known)}")


def several(body: Mapping[str, object], one: str, more: str, most: int) -> list[tuple[str, str]]:
    """One string or a list of them, each with what it is called."""
    if (one in body) == (more in body):
        raise RequestError(422, f"give {one}, a string, or {more}, a list of strings, and not both")
    found = [body[one]] if one in body else body[more]
    if not isinstance(found, list):
        raise RequestError(422, f"{more} must be a list of strings, got {kind(found)}; for one write {one}")
    if not found:
        raise RequestError(422, f"{more} is an empty list; give 1 to {most}")
    if len(found) > most:
        raise RequestError(422, f"{more} must be 1 to {most}, got {len(found)}; ask several times")
    named = [(one if one in body else f"{more}[{n}]", value) for n, value in enumerate(found)]
    for where, value in named:
        if not isinstance(value, str):
            raise RequestError(422, f"{where} must be a string, got {kind(value)}")
    return named


def whole(body: Mapping[str, object], name: str, otherwise: int, most: int) -> int:
    """A whole number from 1."""
    value = body.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        got = value if isinstance(value, int | float) and not isinstance(value, bool) else kind(value)
        raise RequestError(422, f"{name} must be a whole number from 1 to {most}, got {str(got)[:40]}")
    return value


def flag(body: Mapping[str, object], name: str) -> bool:
    """True or false, which is false if nobody says it."""
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(422, f"{name} must be true or false, got {kind(value)}")
    return value
