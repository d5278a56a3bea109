"""Checks of the options of tasks and models: one sentence with the option, the value and the way out. No torch here."""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.common.options.fields import as_paths, resolve
from regard.common.suggestions import known


def check_fields(options: Any) -> None:
    """Raises for a value that its field does not take: another type, another word, nan, or a number out of bounds.

    Texts in fields of paths become paths, and lists of numbers tuples. None is a value of open fields alone, and not
    checked there. A frozen dataclass calls it in its `__post_init__`; TaskConfig, ModelOptions and CheckedOptions do.
    """
    for item in fields(options):
        _check_type(options, item)
    for item in fields(options):
        if getattr(options, item.name) is not None:
            _check_bounds(options, item)


class CheckedOptions:
    """A dataclass that checks its fields when it is made."""

    def __post_init__(self) -> None:
        check_fields(self)


@cache
def _hints(options: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = get_type_hints(options)
    return {item.name: hints[item.name] for item in fields(options)}


def _check_type(options: Any, item: "Field[Any]") -> None:
    """Makes a path of a text and a tuple of a list, where that is the type of the field; raises for another value."""
    kind: Any = type(options)
    name, hint, value = item.name, _hints(kind)[item.name], getattr(options, item.name)
    if hint == tuple[Path, ...]:
        object.__setattr__(options, name, as_paths(value or ()))
    elif value is None:
        if item.default not in (None, MISSING) and NoneType not in get_args(hint):
            raise TypeError(f"{name} must have a value, got None; leave it out for {item.default!r}")
    elif hint in (Path, Path | None):
        object.__setattr__(options, name, Path(value))
    elif (words := literal_choices(kind).get(name)) is not None:
        known(name, value, words)
    elif hint in _NUMBERS:
        number_class, noun = _NUMBERS[hint]
        if isinstance(value, bool) or not isinstance(value, number_class):
            raise TypeError(f"{name} must be {noun}, got {value!r}; write it in digits, such as {name}=1")
    elif hint in (bool, bool | None):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}; write one of them, such as {name}=True")
    else:
        for part in (hint, *get_args(hint)):
            if get_origin(part) is tuple and get_args(part)[0] in _NUMBERS:
                object.__setattr__(options, name, _tuple_of_numbers(item, value, get_args(part)))


def _tuple_of_numbers(item: "Field[Any]", value: Any, types: tuple[Any, ...]) -> tuple[Any, ...]:
    """The value of a field of several numbers, of a list too; raises for another value, another number or count."""
    number_class, noun = _NUMBERS[types[0]]
    count = None if ... in types else len(types)
    numbers = tuple(value) if isinstance(value, list) else value
    if (
        not isinstance(numbers, tuple)
        or any(isinstance(number, bool) or not isinstance(number, number_class) for number in numbers)
        or count not in (None, len(numbers))
    ):
        nouns = f"{'' if count is None else f'{count} '}{noun.removeprefix('a ')}s"
        raise TypeError(f"{item.name} must be a tuple of {nouns}, got {value!r}; {_way(item)}")
    return numbers


def _check_bounds(options: Any, item: "Field[Any]") -> None:
    """Raises for a number, or one of a tuple, that is not within the bounds of its field."""
    bounds = {key: limit for key, limit in item.metadata.items() if key in _HOLDS and limit is not None}
    value = getattr(options, item.name)
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, Real):
            continue
        if isinstance(number, Integral) and abs(int(number)) > _LARGEST and not bounds.keys() & {"maximum", "below"}:
            raise ValueError(f"{item.name} must be at most {_LARGEST}, got {reprlib.repr(value)}; try a smaller one")
        is_finite = _is_finite(number)
        if not (is_finite and all(_HOLDS[key](number, limit) for key, limit in bounds.items())):
            raise ValueError(f"{item.name} must be {_range(bounds, is_finite)}, got {_shown(value)}; {_way(item)}")
    if (whole := item.metadata.get("divides")) is not None:
        check_even_heads(getattr(options, whole), value, whole, item.name)


def _is_finite(number: Any) -> bool:
    """Whether a number is one that a float can be: a whole number of 400 digits is not."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    """A value in an error; of a whole number beyond 64 bits the first and the last digits."""
    return reprlib.repr(value) if isinstance(value, Integral) and abs(int(value)) >> 64 else str(value)


# the largest whole number where a field has no bound of its own: every smaller one is a float64, and torch takes it
_LARGEST = 1 << 53
# the bounds of a field, and whether a number is within one
_HOLDS = {
    "minimum": lambda number, limit: number >= limit,
    "above": lambda number, limit: number > limit,
    "maximum": lambda number, limit: number <= limit,
    "below": lambda number, limit: number < limit,
}


# bounds that are easier to read as powers
_LARGE: dict[float, object] = {2**63: "2^63"}


def _range(bounds: Mapping[str, float], is_finite: bool) -> str:
    """Bounds in words; those of a number that is not finite say so."""
    if not bounds:
        return "a finite number"
    if bounds.keys() == {"minimum", "maximum"}:
        return f"from {bounds['minimum']} to {bounds['maximum']}"
    if bounds == {"above": 0}:
        return "positive and finite"
    words = {"minimum": "{} or more", "above": "above {}", "maximum": "at most {}", "below": "below {}"}
    finite = [] if is_finite else ["finite"]
    return " and ".join([*(words[key].format(_LARGE.get(limit, limit)) for key, limit in bounds.items()), *finite])


def _way(item: "Field[Any]") -> str:
    """The default of a field, or an example of a value, to try."""
    open_value = item.metadata.get("example", item.metadata.get("open"))
    example = open_value if item.default is None else item.default
    has_example = isinstance(example, int | float | tuple)
    return f"try {item.name}={example}" if has_example else "leave it out for a value that suits"


@cache
def literal_choices(options: Any) -> dict[str, tuple[str, ...]]:
    """The fields of a dataclass that take one of a few words, and these words."""
    parts = {name: (hint, *get_args(hint)) for name, hint in _hints(options).items()}
    literals = {name: [part for part in each if get_origin(part) is Literal] for name, each in parts.items()}
    return {name: get_args(each[0]) for name, each in literals.items() if each}


# types of fields that take a number, with the class of their values and its name
_NUMBERS: dict[Any, tuple[type, str]] = {
    **dict.fromkeys((int, int | None), (Integral, "a whole number")),
    **dict.fromkeys((float, float | None), (Real, "a number")),
}


def check_even_heads(width: int | None, heads: int | None, whole: str = "width", part: str = "heads") -> None:
    """Raises unless the width splits evenly over the heads; None is not checked. `whole` and `part` are their names."""
    if width is not None and heads is not None and width % heads:
        raise ValueError(
            f"{whole} must split evenly over {part}, got {whole}={width} and {part}={heads}; "
            f"try {whole}={width - width % heads or heads}, or another number of {part}"
        )


def check_owner(options: Any, chooser: str, owners: Mapping[str, tuple[str, ...]]) -> None:
    """Raises for options that belong to another value of the option `chooser` than the one it has."""
    chosen = getattr(options, chooser)
    for owner, names in owners.items():
        for name in names:
            if owner != chosen and (value := getattr(options, name)) is not None:
                raise ValueError(
                    f"{name}={value!r} belongs to {chooser}='{owner}', not to '{chosen}'; "
                    f"leave it out or choose the other {chooser}"
                )


# Options that a command line alone types, in its spelling


def dashed(name: str) -> str:
    """The option of a field, as it is typed."""
    return f"--{name.replace('_', '-')}"


def check_radius(options: Any, name: str) -> None:
    """Raises for a radius of an attack that is not in the box of pixels; None is not checked."""
    value = getattr(options, name)
    if value is not None and not 0 < value <= 1:
        raise ValueError(
            f"{dashed(name)} must be more than 0 and at most 1, as pixels are from 0 to 1, got {value:g}; 8 of 255 "
            f"grey levels are {dashed(name)} {8 / 255:.3g}"
        )


def check_beam(options: Any) -> None:
    """Raises for a length penalty without a beam; fills in the penalty."""
    if options.beam == 1 and options.length_penalty is not None:
        raise ValueError(f"--length-penalty {options.length_penalty} means nothing to --beam 1; raise --beam")
    resolve(options, {"length_penalty": 1.0})


def check_top(options: Any, count: int, nouns: str = "classes") -> None:
    """Raises for more classes, or other things, to print than there are."""
    if options.top > count:
        raise ValueError(f"--top {options.top} exceeds the {count} {nouns} of this run; try --top {count}")


def check_split(options: Any) -> None:
    """Raises for --split beside --test; fills in the split."""
    if options.test and options.split is not None:
        test = options.test[0] if isinstance(options.test, tuple) else options.test
        raise ValueError(f"--split {options.split} and --test {test} exclude each other; give one of them")
    resolve(options, {"split": "test"})


# A batch of fewer samples may hold a small data set without a warning.
_MANY_SAMPLES = 1 << 10


def large_batch_warnings(batch: int, count: int, noun: str) -> list[str]:
    """A sentence if a batch of many samples holds all `count` of them and more; `noun` is their plural."""
    if batch <= max(count, _MANY_SAMPLES):
        return []
    return [
        f"--batch {batch:,} is more than the {count:,} {noun} there are: an epoch is one step, in which all of them "
        f"take memory at once; try --batch {max(count // 16, 1)}"
    ]
