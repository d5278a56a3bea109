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
        raise TypeError(f"{kind} must be a name, got {name!r}; known are: {_listed(names)}")
    ends = [each.removeprefix(prefix) for each in names]
    near = difflib.get_close_matches(name.removeprefix(prefix), ends, n=1, cutoff=0.6)
    hint = f"did you mean {prefix + near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {hint}known are: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST:
        return ", ".join(names)
    return f"{', '.join(names[:_FEW])} and {len(names) - _FEW:,} more"
