"""The help of a command, out of the docstrings of its dataclasses. No torch here."""

import ast
import inspect
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from typing import Any, NamedTuple

from regard.cli.parsing.option import Option, models_of

# a longer option has its help on the line below
_OPTION_WIDTH = 22


class _Row(NamedTuple):
    """A line of the help."""

    option: str
    text: str
    default: str

    @property
    def help(self) -> str:
        return f"{self.text} (default: {self.default})" if self.default else self.text


def format_help(
    options: type, prog: str, table: Sequence[Option], sections: Mapping[str, type], defaults: Mapping[str, Any]
) -> str:
    """The usage, the description, and a block of options per section and per model."""
    docs = field_docs(options)
    placed = [option for option in table if option.positional]
    own = [option for option in table if not option.section and not option.positional]
    needed = [f"{option.flag} {option.metavar(None)}" for option in own if option.required]
    blocks = {
        "positional arguments": [_row(option, docs, defaults, sections) for option in placed],
        "options": [
            _Row("-h, --help", "Show this help.", ""),
            *(_row(option, docs, defaults, sections) for option in own),
        ],
    }
    for key, section in sections.items():
        blocks |= _section_blocks(key, section, table, sections, defaults)
    width = max(shutil.get_terminal_size().columns, 50)
    usage = ["usage:", prog, "[-h]", "[OPTIONS]", *needed, *map(_word, placed)]
    lines = [textwrap.fill(" ".join(usage), width, subsequent_indent="  ")]
    lines += [f"\n{textwrap.fill(paragraph, width)}" for paragraph in _description(options)]
    column = 4 + max(len(row.option) for rows in blocks.values() for row in rows if len(row.option) <= _OPTION_WIDTH)
    for title, rows in blocks.items():
        if rows:
            lines += [f"\n{title}:", *(_format(row, column, width) for row in rows)]
    return "\n".join(lines)


def field_docs(options: type) -> dict[str, str]:
    """The string below each field."""
    docs = {}
    # the string of a subclass replaces that of its base
    for each in reversed(_dataclasses(options)):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for item, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(below, ast.Expr):
                assert isinstance(below.value, ast.Constant)
                docs[item.target.id] = str(below.value.value)
    return docs


def _section_blocks(
    key: str, section: type, table: Sequence[Option], sections: Mapping[str, type], defaults: Mapping[str, Any]
) -> dict[str, list[_Row]]:
    """The options of a section and those that all of its models share, then the other options of each model."""
    title, docs, models = f"{key.replace('_', ' ')} options", field_docs(section), models_of(section)
    blocks: dict[str, list[_Row]] = {title: []}
    for option in table:
        if option.section != key or option.model:
            continue
        if option.name == "model" and models:
            given = {"name": next(iter(models)), **defaults.get("model", {})}
            blocks[title].append(_row(option, docs, {"model": given["name"]}, sections))
            shared, others = _model_rows(key, models, table, sections, defaults)
            blocks[title] += shared
            blocks |= {f"options of --model {name}": rows for name, rows in others.items()}
        else:
            blocks[title].append(_row(option, docs, defaults, sections))
    return blocks


def _model_rows(
    key: str,
    models: Mapping[str, type],
    table: Sequence[Option],
    sections: Mapping[str, type],
    defaults: Mapping[str, Any],
) -> tuple[list[_Row], dict[str, list[_Row]]]:
    given = defaults.get("model", {})
    rows: dict[str, dict[str, _Row]] = {}
    for name, model in models.items():
        docs, own = field_docs(model), given if given.get("name", name) == name else {}
        options = [option for option in table if (option.section, option.model) == (key, name)]
        rows[name] = {option.name: _row(option, docs, own, sections) for option in options}
    shared = []
    for option in list(next(iter(rows.values()))):
        alike = {name: own[option] for name, own in rows.items() if option in own}
        if len(alike) == len(models) and len({row[:2] for row in alike.values()}) == 1:
            each = {name: row.default for name, row in alike.items() if row.default}
            same = len(set(each.values())) == 1 and len(each) == len(models)
            default = (
                next(iter(each.values())) if same else ", ".join(f"{text} for {name}" for name, text in each.items())
            )
            shared.append(next(iter(alike.values()))._replace(default=default))
            for own in rows.values():
                del own[option]
    return shared, {name: list(own.values()) for name, own in rows.items()}


def _row(option: Option, docs: Mapping[str, str], defaults: Mapping[str, Any], sections: Mapping[str, type]) -> _Row:
    value = defaults.get(option.name)
    metavar = option.metavar(option.field.default if value is None else value)
    shown = metavar if option.positional else option.flag if option.count == 0 else f"{option.flag} {metavar}"
    return _Row(shown, docs.get(option.name, ""), _default_text(option, value, sections if option.section else {}))


def _default_text(option: Option, value: Any, sections: Mapping[str, Any]) -> str:
    """What the help says of an option that is not typed; `value` is a default that replaces the field's own."""
    if value is None:
        for section in sections.values():
            if hasattr(section, "default_for_help") and (text := section.default_for_help(option.name)):
                return str(text)
        value = option.field.metadata.get("open") or option.field.default
    if value is None or value is MISSING or value == () or value is False:
        return ""
    if value is True:
        return "yes"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _word(option: Option) -> str:
    """A word of the usage that stands by its place."""
    metavar = option.metavar(None)
    return metavar if option.required or metavar.startswith("[") else f"[{metavar}]"


def _format(row: _Row, column: int, width: int) -> str:
    lines = textwrap.wrap(row.help, width - column, break_on_hyphens=False) or [""]
    lines = [f"{'':{column}}{line}" for line in lines]
    if len(row.option) + 4 > column:
        return "\n".join([f"  {row.option}", *lines])
    return "\n".join([f"  {row.option:{column - 2}}{lines[0].strip()}", *lines[1:]]).rstrip()


def _dataclasses(options: type) -> list[type]:
    """A dataclass and those that it inherits from."""
    return [each for each in options.__mro__ if is_dataclass(each)]


def _description(options: type) -> list[str]:
    """The paragraphs of the docstrings of a dataclass and of those that it inherits from."""
    docs = [inspect.cleandoc(each.__doc__) for each in _dataclasses(options) if each.__doc__]
    return "\n\n".join(docs).split("\n\n")
