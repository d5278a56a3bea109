"""Command-line options as the fields of dataclasses describe them. No torch here."""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from regard.common.options.checks import dashed


@dataclass(frozen=True)
class Option:
    """An option or a positional argument."""

    owner: type  # the dataclass that has the field
    field: "Field[Any]"
    kind: Any  # the type of one value: int, float, bool, str or Path
    optional: bool  # whether None is a value
    choices: tuple[str, ...] = ()
    count: int | None = 1  # values: 0 of a flag, None for one or more
    section: str = ""
    model: str = ""  # the model that has the option; empty if the section itself has it

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def positional(self) -> bool:
        return bool(self.field.metadata.get("positional"))

    @property
    def required(self) -> bool:
        return self.field.default is MISSING and self.field.default_factory is MISSING

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return dashed(self.name)

    @property
    def value_name(self) -> str:
        """The placeholder of one value in the help."""
        if self.choices:
            return "{" + ",".join(self.choices) + "}"
        if self.positional or (self.kind is str and self.count is None):
            return "RUN" if self.kind is Path else self.name.upper()
        if self.kind is Path:
            return "RUN" if self.required else "FOLDER" if self.name in ("run", "out") else "FILE"
        return {bool: "{True,False}", int: "INT", float: "FLOAT"}.get(self.kind, "NAME")

    def metavar(self, default: Any) -> str:
        """The placeholder behind the option in the help; `default` is its value if it is not typed."""
        if (metavar := self.field.metadata.get("metavar")) is not None:
            return str(metavar)
        value = self.value_name
        if self.count is None:
            return f"[{value} ...]" if self.positional else f"{value} [{value}{'' if self.kind is Path else ' ...'}]"
        none = "|None" if self.optional and not self.positional and default is not None else ""
        return " ".join([value] * self.count) + none


def models_of(section: Any) -> dict[str, type]:
    """The dataclasses that --model of a section chooses from, by name; the first is the default."""
    return getattr(section, "models", {}) if any(item.name == "model" for item in fields(section)) else {}


def without_none(hint: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was in it."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        assert len(kinds) == 1, hint
        return kinds[0], True
    return hint, False


def options_of(options: type, sections: Mapping[str, type]) -> list[Option]:
    """Every option of a dataclass and of its sections, in the order of the help."""
    hidden = [item.name for item in fields(options)]
    return [*_read(options), *section_options(sections, hidden)]


def section_options(sections: Mapping[str, type], hidden: Sequence[str] = ()) -> list[Option]:
    """The options of sections and of their models; an option of several models is listed once per model."""
    table: list[Option] = []
    for key, section in sections.items():
        models = models_of(section)
        for option in _read(section, exclude=hidden, section=key, models=tuple(models)):
            table.append(option)
            if option.name == "model":
                for name, model in models.items():
                    table += _read(model, exclude=hidden, section=key, model=name)
    return table


def by_name(options: Iterable[Option], model: object) -> dict[str, Option]:
    """Options by name; if several models have an option, that of the model with this name."""
    names: dict[str, Option] = {}
    for option in sorted(options, key=lambda option: option.model not in ("", model)):
        names.setdefault(option.name, option)
    return names


def _read(
    options: Any, exclude: Sequence[str] = (), section: str = "", model: str = "", models: tuple[str, ...] = ()
) -> Iterator[Option]:
    hints = get_type_hints(options)
    for item in fields(options):
        # a dict has the options of a section; a section may have the name of an option, as the task track has
        if item.name in exclude or get_origin(hints[item.name]) is dict:
            continue
        if item.name == "model" and models:
            yield Option(options, item, str, optional=False, choices=models, section=section)
            continue
        kind, optional = without_none(hints[item.name])
        optional = optional or item.default is None
        choices: tuple[str, ...] = ()
        count: int | None = 0 if item.metadata.get("flag") else 1
        if get_origin(kind) is tuple:
            kind, *others = get_args(kind)
            count = None if others == [...] else 1 + len(others)
        if get_origin(kind) is Literal:
            kind, choices = str, get_args(kind)
        yield Option(options, item, kind, optional, choices, count, section, model)
