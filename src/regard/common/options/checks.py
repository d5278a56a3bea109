"""Checks of the options of tasks and models: one sentence with the option, the value and the way out. No torch here."""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.common.options.fields import resolve
from regard.common.suggestions import known


@cache
def literal_choices(options: Any) -> dict[str, tuple[str, ...]]:
    """The fields of a dataclass that take one of a few words, and these words."""
    hints = get_type_hints(options)
    parts = {item.name: (hints[item.name], *get_args(hints[item.name])) for item in fields(options)}
    literals = {name: [part for part in each if get_origin(part) is Literal] for name, each in parts.items()}
    return {name: get_args(each[0]) for name, each in literals.items() if each}


def check_choices(options: Any) -> None:
    """Raises for a word that is none of those that its field takes."""
    kind: Any = type(options)
    for name, words in literal_choices(kind).items():
        if (value := getattr(options, name)) is not None:
            known(name, value, words)


# types of fields that take a number, with the class of their values and its name
_NUMBERS: dict[Any, tuple[type, str]] = {
    **dict.fromkeys((int, int | None), (Integral, "a whole number")),
    **dict.fromkeys((float, float | None), (Real, "a number")),
}


@cache
def _number_fields(options: Any) -> dict[str, tuple[type, str]]:
    """The fields of a dataclass that take a number, with their entry of `_NUMBERS`."""
    hints = get_type_hints(options)
    return {item.name: _NUMBERS[hints[item.name]] for item in fields(options) if hints[item.name] in _NUMBERS}


def check_numbers(options: Any, values: Mapping[str, Any]) -> None:
    """Raises for a value of a field that takes a number and is given none; None, an open field, is not checked."""
    for name, (kind, noun) in _number_fields(options).items():
        value = values.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise TypeError(f"{name} must be {noun}, got {value!r}; write it in digits, such as {name}=1")


def check_at_least(options: Any, least: int, examples: Mapping[str, float | None]) -> None:
    """Raises for a number that is too small or not finite; `examples` names the fields, with a value to try or None."""
    for name, example in examples.items():
        value = getattr(options, name)
        if value is not None and not least <= value < math.inf:
            way = "leave it out for a value that suits" if example is None else f"try {name}={example}"
            finite = "" if math.isfinite(value) else " and finite"
            raise ValueError(f"{name} must be {least} or more{finite}, got {value}; {way}")


def check_at_most(options: Any, most: int, examples: Mapping[str, int]) -> None:
    """Raises if one of these options is given and greater than `most`."""
    for name, example in examples.items():
        value = getattr(options, name)
        if value is not None and value > most:
            raise ValueError(f"{name} must be {most} at most, got {value}; try {name}={example}")


def check_even_heads(width: int | None, heads: int | None) -> None:
    """Raises unless the width splits evenly over the heads; None is not checked."""
    if width is not None and heads is not None and width % heads:
        raise ValueError(
            f"width must split evenly over heads, got width={width} and heads={heads}; "
            f"try width={width - width % heads or heads}, or another number of heads"
        )


def check_share(options: Any, examples: Mapping[str, float]) -> None:
    """Raises for a number that is not from 0 to below 1."""
    for name, example in examples.items():
        value = getattr(options, name)
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"{name} must be 0 or more and below 1, got {value}; try {name}={example}")


def check_inner_share(options: Any, examples: Mapping[str, float]) -> None:
    """Raises for a number that is not above 0 and below 1."""
    for name, example in examples.items():
        value = getattr(options, name)
        if not 0 < value < 1:
            raise ValueError(f"{name} must be above 0 and below 1, got {value}; try {name}={example}")


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


def check_positive(options: Any, *names: str) -> None:
    """Raises for a whole number below one; None is not checked."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{dashed(name)} must be 1 or more, got {value}; {_remedy(options, name)}")


def check_finite(options: Any, *names: str) -> None:
    """Raises for nan and infinity; None is not checked."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{dashed(name)} must be a finite number, got {value}; {_remedy(options, name)}")


def check_radius(options: Any, name: str) -> None:
    """Raises for a radius of an attack that is not in the box of pixels; None is not checked."""
    value = getattr(options, name)
    if value is not None and not 0 < value <= 1:
        raise ValueError(
            f"{dashed(name)} must be more than 0 and at most 1, as pixels are from 0 to 1, got {value:g}; 8 of 255 "
            f"grey levels are {dashed(name)} {8 / 255:.3g}"
        )


def check_seed(options: Any) -> None:
    """Raises for a `seed` that torch does not take; None is not checked."""
    if options.seed is not None and not 0 <= options.seed < 2**63:
        raise ValueError(f"--seed must be 0 or more and below 2^63, got {options.seed}; try --seed 1")


def _remedy(options: Any, name: str) -> str:
    """The default as an example, if it is a number."""
    (item,) = (item for item in fields(options) if item.name == name)
    default = item.metadata.get("open", item.default)
    return f"try {dashed(name)} {default}" if isinstance(default, int | float) else "leave it out"


def check_beam(options: Any) -> None:
    """Raises for a beam below one, and for a length penalty without a beam; fills in the penalty."""
    check_positive(options, "beam")
    check_finite(options, "length_penalty")
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
