"""Checks of typed values, and errors that name options as they are typed. No torch here."""

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from regard.cli.parsing.option import dashed, models_of


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


def check_seed(options: Any) -> None:
    """Raises for a `seed` that torch does not take; None is not checked."""
    if options.seed is not None and not 0 <= options.seed < 2**63:
        raise ValueError(f"--seed must be 0 or more and below 2^63, got {options.seed}; try --seed 1")


def _remedy(options: Any, name: str) -> str:
    """The default as an example, if it is a number."""
    (field,) = (field for field in fields(options) if field.name == name)
    default = field.metadata.get("open", field.default)
    return f"try {dashed(name)} {default}" if isinstance(default, int | float) else "leave it out"


def with_cli_option_names(text: str, options: Sequence[type]) -> str:
    """A sentence with the options of these dataclasses as they are typed: lr=0.001 becomes --lr 0.001."""
    owners = [*options, *(model for each in options for model in models_of(each).values())]
    names = {field.name for each in owners for field in fields(each) if not field.metadata.get("positional")}

    def option(name: str) -> str:
        return dashed(name) if name in names else name

    def assignment(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in names:
            return match[0]
        plain = value.strip("()").replace(",", "") if value.startswith("(") else value.strip("'")
        return f"{option(name)} {plain}"

    # a path that has such a folder in it stays as it is
    text = re.sub(r"(?<![\w/\\.'\"-])([a-z_]+)=('[^']*'|\([^)]*\)|[^\s,;]+)(?![\w/])", assignment, text)
    text = re.sub(r"\bunknown ([a-z_]+) '", lambda match: f"unknown {option(match[1])} '", text)
    first, _, rest = text.partition(" ")
    return f"{option(first)} {rest}" if rest.startswith("must ") else text
