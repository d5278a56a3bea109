"""Fields of dataclasses whose values a command line types. No torch here.

    @dataclass(frozen=True)
    class Predict:
        beam: int = left_open("5, or 1 for hard attention")
        \"""Hypotheses kept at every step.\"""

The string below a field is its help. A dataclass fills its open fields itself when it is made (`resolve`), so that
whoever reads it, and the file that records it, sees a value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any


def left_open(description: object = "", *, metavar: str | None = None) -> Any:
    """A field that is None until it is resolved; `description` says in the help what it becomes."""
    return field(default=None, metadata={"open": description, "metavar": metavar})


def positional(default: Any = MISSING, *, metavar: str | None = None, called: str | None = None) -> Any:
    """A field that is typed by its position; `called` is the noun for one of several known words in an error."""
    return field(default=default, metadata={"positional": True, "metavar": metavar, "called": called})


def flag() -> Any:
    """A field that is False unless its bare name is typed."""
    return field(default=False, metadata={"flag": True})


def option(default: Any, *, metavar: str) -> Any:
    """A field whose value has a name of its own in the help, such as FOLDER."""
    return field(default=default, metadata={"metavar": metavar})


def at_least(minimum: int, default: int, *, maximum: int | None = None) -> Any:
    """A number with a smallest value, and maybe a largest one, which the schema of a service states too."""
    return field(default=default, metadata={"minimum": minimum, "maximum": maximum})


def not_blank() -> Any:
    """A text that is None by default and must have a word, which the schema of a service states too."""
    return field(default=None, metadata={"pattern": r"\S"})


def resolve(options: Any, values: Mapping[str, Any]) -> None:
    """Fills the fields of a frozen dataclass that are None with these values, in its `__post_init__`."""
    for item in fields(options):
        if item.name in values and getattr(options, item.name) is None:
            object.__setattr__(options, item.name, values[item.name])


def as_paths(value: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    """One path or several, as a tuple."""
    return (Path(value),) if isinstance(value, str | Path) else tuple(map(Path, value))
