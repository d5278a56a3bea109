"""Checks a name against the known names and suggests the nearest. No torch here: the command line uses it too."""

import difflib
from collections.abc import Iterable


def known(kind: str, name: object, names: Iterable[str]) -> None:
    """Raises if `name` is not one of `names`; the error suggests the nearest one."""
    names = list(names)
    if name in names:
        return
    if not isinstance(name, str):
        raise TypeError(f"{kind} must be a name, got {name!r}; known are: {', '.join(names)}")
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {hint}known are: {', '.join(names)}")
