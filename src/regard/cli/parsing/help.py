"""The help of a command, out of the docstrings of its dataclasses. No torch here."""

import ast
import inspect
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from regard.cli.parsing.option import Option, models_of

# a longer option has its help on the line below
_OPTION_WIDTH = 22

_fill = partial(textwrap.fill, break_on_hyphens=False)


class _Row(NamedTuple):
    """An option in the help."""

    name: str
    text: str
    default: str = ""


def format_help(
    options: type, prog: str, table: Sequence[Option], sections: Mapping[str, type], defaults: Mapping[str, Any]
) -> str:
    """The usage, the description, and a block of options per section and per model."""
    positionals = [option for option in table if option.positional]
    verb_options = [option for option in table if not option.section and not option.positional]
    blocks = {
        "positional arguments": [_row(option, defaults) for option in positionals],
        "options": [_Row("-h, --help", "Show this help."), *(_row(option, defaults) for option in verb_options)],
    }
    for key in sections:
        blocks |= _section_blocks(key, table, sections, defaults)
    width = max(shutil.get_terminal_size().columns, 50)
    required = [f"{option.flag} {option.metavar(None)}" for option in verb_options if option.required]
    usage = ["usage:", prog, "[-h]", "[OPTIONS]", *required, *map(_usage_word, positionals)]
    description = inspect.cleandoc(options.__doc__ or "").split("\n\n")
    paragraphs = [_fill(text, width) for text in [" ".join(usage), *description]]
    column = 4 + max(len(row.name) for rows in blocks.values() for row in rows if len(row.name) <= _OPTION_WIDTH)
    for title, rows in blocks.items():
        if rows:
            paragraphs.append("\n".join([f"{title}:", *(_format(row, column, width) for row in rows)]))
    return "\n\n".join(paragraphs)


@cache
def field_docs(options: type) -> dict[str, str]:
    """The string below each field; `{content}` in it is the noun of the dataclass."""
    docs: dict[str, str] = {}
    # the string of a subclass replaces that of its base
    for each in filter(is_dataclass, reversed(options.__mro__)):
        docs |= {item.name: item.metadata["help"] for item in fields(each) if "help" in item.metadata}
        if each.__module__ == "types":  # made by make_dataclass, it has no source
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for item, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(below, ast.Expr):
                assert isinstance(below.value, ast.Constant)
                docs[item.target.id] = " ".join(str(below.value.value).split())
    return {name: doc.replace("{content}", getattr(options, "content", "data")) for name, doc in docs.items()}


def _section_blocks(
    key: str, table: Sequence[Option], sections: Mapping[str, type], defaults: Mapping[str, Any]
) -> dict[str, list[_Row]]:
    """The options of a section and those that all of its models share, then the other options of each model."""
    rows: list[_Row] = []
    others: dict[str, list[_Row]] = {}
    for option in table:
        if option.section != key or option.model:
            continue
        if option.name != "model" or not models_of(option.owner):
            rows.append(_row(option, defaults, sections))
            continue
        model_defaults = {"name": option.choices[0], **defaults.get("model", {})}
        shared, others = _model_rows(option.choices, key, table, sections, defaults.get("model", {}))
        rows += [_row(option, {"model": model_defaults["name"]}), *shared]
    titles = {f"options of --model {model}": model_rows for model, model_rows in others.items()}
    return {f"{key.replace('_', ' ')} options": rows, **titles}


def _model_rows(
    models: Sequence[str],
    key: str,
    table: Sequence[Option],
    sections: Mapping[str, type],
    model_defaults: Mapping[str, Any],
) -> tuple[list[_Row], dict[str, list[_Row]]]:
    """The options that all models share, and the others of each."""
    rows: dict[str, dict[str, _Row]] = {}
    for model in models:
        defaults = model_defaults if model_defaults.get("name", model) == model else {}
        options = [option for option in table if (option.section, option.model) == (key, model)]
        rows[model] = {option.name: _row(option, defaults, sections) for option in options}
    shared = []
    for name in list(rows[models[0]]):
        alike = [by_name[name] for by_name in rows.values() if name in by_name]
        if len(alike) == len(models) and len({row[:2] for row in alike}) == 1:
            default = {model: by_name.pop(name).default for model, by_name in rows.items()}
            each = ", ".join(f"{text} for {model}" for model, text in default.items() if text)
            shared.append(alike[0]._replace(default=each if len(set(default.values())) > 1 else default[models[0]]))
    return shared, {model: list(by_name.values()) for model, by_name in rows.items()}


def _row(option: Option, defaults: Mapping[str, Any], sections: Mapping[str, Any] = {}) -> _Row:
    value = defaults.get(option.name)
    metavar = option.metavar(option.field.default if value is None else value)
    name = metavar if option.positional else option.flag if option.count == 0 else f"{option.flag} {metavar}"
    if value is None:
        hooks = [section.default_for_help for section in sections.values() if hasattr(section, "default_for_help")]
        descriptions = [*(hook(option.name) for hook in hooks), option.field.metadata.get("open"), option.field.default]
        value = next((value for value in descriptions if value not in (None, "")), None)
    if value is None or value is MISSING or value == () or value is False:
        default = ""
    else:
        default = "yes" if value is True else " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return _Row(name, field_docs(option.owner).get(option.name, ""), default)


def _usage_word(option: Option) -> str:
    """A positional argument in the usage."""
    metavar = option.metavar(None)
    return metavar if option.required or metavar.startswith("[") else f"[{metavar}]"


def _format(row: _Row, column: int, width: int) -> str:
    help = f"{row.text} (default: {row.default})" if row.default else row.text
    indent = " " * column
    head = f"  {row.name}"
    if len(head) + 2 > column:
        return f"{head}\n{_fill(help, width, initial_indent=indent, subsequent_indent=indent)}"
    return _fill(help, width, initial_indent=head.ljust(column), subsequent_indent=indent)
