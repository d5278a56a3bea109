"""Errors that name options as they are typed. No torch here."""

import re
from collections.abc import Sequence
from dataclasses import fields

from regard.cli.parsing.option import models_of
from regard.common.options.checks import dashed


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
