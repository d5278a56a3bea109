"""What was typed, looked over before tyro reads it: a mistake is told in one sentence.  No torch here."""

import contextlib
import difflib
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro

# what a value must be, in words, by its type
_WORDS = {int: "a whole number", float: "a number", bool: "True or False"}


class _Option(NamedTuple):
    kind: Any  # of a value, without None
    least: int  # values
    most: int | None  # None is any number of them
    optional: bool
    needed: str  # what stands for it in a usage line, if nothing may be left out


def check(of: Any, prog: str, args: Sequence[str], task: Any) -> list[str]:
    """What was typed, words before options, as tyro wants it.

    Raises for an option that is not there or is there twice, for values that are missing or no numbers, for words too
    few or too many.
    """
    named, placed = {}, []
    for flag, option, positional in _options(of, task):
        if positional:
            placed.append(option)
        else:
            named[flag] = option
    words: list[str] = []
    options: list[str] = []
    rest = list(args)
    seen: set[str] = set()
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if word in ("-h", "--help"):
            return list(args)
        if not _dashed(word):
            words.append(word)
            continue
        typed, equals, value = word.partition("=")
        flag = typed.replace("_", "-")
        if flag not in named:
            # without the dashes, which all have in common
            near = difflib.get_close_matches(flag.lstrip("-"), [name[2:] for name in named], n=1, cutoff=0.6)
            hint = f"did you mean --{near[0]}? " if near else ""
            raise ValueError(f"unknown option {typed}; {hint}{prog} --help lists what there is")
        if flag in seen:
            raise ValueError(f"{flag} is given twice; give it once")
        seen.add(flag)
        option = named[flag]
        values = [value] if equals else []
        while not equals and rest and (option.most is None or len(values) < option.most) and not _dashed(rest[0]):
            values.append(rest.pop(0))
        _values(flag, option, values)
        options += [word, *([] if equals else values)]
    _complete(prog, named, placed, seen, len(words) + max(len(rest) - 1, 0))
    return [*words, *options, *rest]


def _dashed(word: str) -> bool:
    """Is it an option, and no text and no negative number?"""
    return re.match(r"--\S|-[a-zA-Z]", word) is not None and " " not in word.partition("=")[0]


def _values(flag: str, option: _Option, values: Sequence[str]) -> None:
    if option.most == 0:
        if values:
            raise ValueError(f"{flag} stands alone, got {flag}={values[0]}; leave the value out")
        return
    if len(values) < option.least:
        what = _WORDS.get(option.kind, "a value")
        if option.least > 1:
            raise ValueError(f"{flag} wants {option.least} values, each {what}, got {len(values)}")
        raise ValueError(f"{flag} wants {what} behind it; one that begins with a dash is typed {flag}=-…")
    for value in values:
        if option.optional and value == "None":
            continue
        try:
            if option.kind in (int, float):
                option.kind(value)
        except ValueError:
            raise ValueError(
                f"{flag} must be {_WORDS[option.kind]}, got {value!r}; write it in digits, such as {_digits(value)}"
            ) from None
        if option.kind is bool and value not in ("True", "False"):
            raise ValueError(f"{flag} must be {_WORDS[bool]}, got {value!r}; write one of them")


def _digits(value: str) -> str:
    """The whole number that was meant, as far as one can tell."""
    with contextlib.suppress(ValueError, OverflowError):
        return str(int(float(value)))
    return "10"


def _complete(
    prog: str, named: Mapping[str, _Option], placed: Sequence[_Option], seen: Collection[str], words: int
) -> None:
    for flag, option in named.items():
        if option.needed and flag not in seen:
            raise ValueError(f"{flag} is missing: {prog} {flag} {option.needed}; {prog} --help tells more")
    needed = [option.needed for option in placed if option.needed]
    if words < len(needed):
        raise ValueError(f"{needed[words]} is missing: {prog} {' '.join(needed)}; {prog} --help tells more")
    if all(option.most is not None for option in placed) and words > len(placed):
        most = len(placed) or "no"
        raise ValueError(f"{prog} takes {most} words beside its options, got {words}; quote what has spaces")


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
        least = 1
        most: int | None = 1
        if tyro.conf.FlagCreatePairsOff in marks:
            least, most = 0, 0
        elif get_origin(kind) is tuple:
            kind, *others = get_args(kind)
            least, most = (1, None) if others == [...] else (1 + len(others),) * 2
        needed = one.default is MISSING and one.default_factory is MISSING
        said = one.metadata.get("metavar") or ("RUN" if kind is Path else one.name.upper())
        yield (
            f"--{one.name.replace('_', '-')}",
            _Option(kind, least, most, optional, said if needed else ""),
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


def spelled(said: str, of: Sequence[Any]) -> str:
    """A sentence with the options of these dataclasses as they are typed: lr=0.001 becomes --lr 0.001."""
    names = {
        flag[2:].replace("-", "_") for each in of for flag, _, positional in _options(each, None) if not positional
    }

    def option(name: str) -> str:
        return f"--{name.replace('_', '-')}" if name in names else name

    def value(found: re.Match[str]) -> str:
        name, given = found.groups()
        if name not in names:
            return found[0]
        several = given.startswith("(")
        plain = given.strip("()").replace(",", "") if several else given.strip("'")
        return f"{option(name)} {plain}"

    # a path that has such a folder in it stays as it is
    said = re.sub(r"(?<![\w/\\.'\"-])([a-z_]+)=('[^']*'|\([^)]*\)|[^\s,;]+)(?![\w/])", value, said)
    said = re.sub(r"\bunknown ([a-z_]+) '", lambda found: f"unknown {option(found[1])} '", said)
    first, _, rest = said.partition(" ")
    return f"{option(first)} {rest}" if rest.startswith("must ") else said
