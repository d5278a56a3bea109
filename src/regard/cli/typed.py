"""What was typed, looked over before tyro reads it: a mistake is told in one sentence.  No torch here."""

import difflib
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro

# what a value must be, in words, by its type
_WORDS = {int: "a whole number", float: "a number", bool: "True or False"}


class _Option(NamedTuple):
    kind: Any  # of a value, without None
    most: int | None  # values; None is any number of them
    optional: bool
    needed: str  # what stands for it in a usage line, if nothing may be left out


def check(of: Any, prog: str, args: Sequence[str], task: Any) -> None:
    """Raises for an option that is not there, a value that is missing or no number, a word too few or too many."""
    named, placed = {}, []
    for flag, option, positional in _options(of, task):
        if positional:
            placed.append(option)
        else:
            named[flag] = option
    seen: set[str] = set()
    words, rest = 0, list(args)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            return
        if word == "--":
            words += len(rest)
            break
        if not word.startswith("--"):
            words += 1
            continue
        typed, equals, value = word.partition("=")
        flag = typed.replace("_", "-")
        if flag not in named:
            near = difflib.get_close_matches(flag, named, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"unknown option {typed}; {hint}{prog} --help lists what there is")
        option = named[flag]
        values = [value] if equals else []
        while not equals and rest and (option.most is None or len(values) < option.most) and not _flag(rest[0]):
            values.append(rest.pop(0))
        _values(flag, option, values)
        seen.add(flag)
    for flag, option in named.items():
        if option.needed and flag not in seen:
            raise ValueError(f"{flag} is missing: {prog} {flag} {option.needed}; {prog} --help tells more")
    needed = [option.needed for option in placed if option.needed]
    if words < len(needed):
        raise ValueError(f"{needed[words]} is missing: {prog} {' '.join(needed)}; {prog} --help tells more")
    if all(option.most is not None for option in placed) and words > len(placed):
        raise ValueError(
            f"{prog} takes {len(placed) or 'no'} words beside its options, got {words}; quote what has spaces"
        )


def _flag(word: str) -> bool:
    """Is it an option, and no negative number?"""
    return word.startswith("--") or word in ("-h",)


def _values(flag: str, option: _Option, values: Sequence[str]) -> None:
    if option.most == 0:
        return
    if not values:
        raise ValueError(f"{flag} wants {_WORDS.get(option.kind, 'a value')} behind it; {flag} VALUE")
    for value in values:
        if option.optional and value == "None":
            continue
        try:
            if option.kind in (int, float):
                option.kind(value)
        except ValueError:
            raise ValueError(f"{flag} must be {_WORDS[option.kind]}, got {value!r}") from None
        if option.kind is bool and value not in ("True", "False"):
            raise ValueError(f"{flag} must be {_WORDS[bool]}, got {value!r}")


def _options(of: Any, task: Any, but: Sequence[str] = ()) -> Iterator[tuple[str, _Option, bool]]:
    """Every option: what is typed, what it takes, and whether it stands by its place."""
    hints = get_type_hints(of, include_extras=True)
    for one in fields(of):
        if one.name in but:
            continue
        if "of" in one.metadata:
            yield from _options(one.metadata["of"] or task, task, [other.name for other in fields(of)])
            continue
        kind, optional = bare(hints[one.name])
        marks = getattr(hints[one.name], "__metadata__", ())
        most: int | None = 1
        if tyro.conf.FlagCreatePairsOff in marks:
            most = 0
        elif get_origin(kind) is tuple:
            kind, *others = get_args(kind)
            most = None if others == [...] else 1 + len(others)
        needed = one.default is MISSING and one.default_factory is MISSING
        said = one.metadata.get("metavar") or ("RUN" if kind is Path else one.name.upper())
        yield (
            f"--{one.name.replace('_', '-')}",
            _Option(kind, most, optional, said if needed else ""),
            tyro.conf.Positional in marks,
        )


def bare(hint: Any) -> tuple[Any, bool]:
    """A type without its annotations and without None, and whether None was in it."""
    if get_origin(hint) is Annotated:
        return bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        assert len(kinds) == 1
        return kinds[0], True
    return hint, False


def spelled(said: str) -> str:
    """A sentence about a training with its options as they are typed: lr=0.001 becomes --lr 0.001."""
    from regard.tasks.kinds import TASKS
    from regard.train.training import Training

    names = {one.name for of in (Training, *TASKS.values()) for one in fields(of)}

    def value(found: re.Match[str]) -> str:
        name, given = found.groups()
        if name not in names:
            return found[0]
        several = given.startswith("(")
        plain = given.strip("()").replace(",", "") if several else given.strip("'")
        return f"--{name.replace('_', '-')} {plain}"

    said = re.sub(r"\b([a-z_]+)=('[^']*'|\([^)]*\)|[^\s,;]+)", value, said)
    first, _, rest = said.partition(" ")
    return f"--{first.replace('_', '-')} {rest}" if first in names and rest.startswith("must ") else said
