"""Checks a name against the known names and suggests the nearest. No torch here: the command line uses it too."""

import difflib
from collections.abc import Iterable, Sequence

# names that an error lists; of more, such as the tokens of a vocabulary, the first few
_MOST, _FEW = 50, 10


def known(kind: str, name: object, names: Iterable[str], prefix: str = "") -> None:
    """Raises if `name` is not one of `names`; the error suggests the nearest one, by what follows the `prefix`."""
    names = list(names)
    if name in names:
        return
    if not isinstance(name, str):
        raise TypeError(f"{kind} must be a name, got {name!r}; known are: {listed(names)}")
    ends = [each.removeprefix(prefix) for each in names]
    raise ValueError(
        f"unknown {kind} {name!r}; {suggestion(name.removeprefix(prefix), ends, prefix)}known are: {listed(names)}"
    )


def suggestion(name: str, names: Iterable[str], prefix: str = "") -> str:
    """The question for the nearest of the names, which stands behind the prefix; empty if none is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean {prefix + near[0]!r}? " if near else ""


def listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST:
        return ", ".join(names)
    return f"{', '.join(names[:_FEW])} and {len(names) - _FEW:,} more"
