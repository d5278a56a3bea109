"""Fields of dataclasses whose values a command line types. No torch here.

    @dataclass(frozen=True)
    class TaggerOptions(ModelOptions):
        model_class: ClassVar[str] = "regard.models.tagger:TransformerTagger"

        width: int = at_least(1, 128)
        \"""The width of the states.\"""
        heads: int = at_least(1, 4, divides="width")
        \"""Heads per layer.\"""
        dropout: float = share()
        \"""The share of activations that dropout sets to zero in training.\"""
        hidden: int = left_open("twice the width", minimum=1)
        \"""The width of the hidden layer.\"""

A field is the one declaration of an option: its default, its bounds, and the string below it, its help. `check_fields`
checks the bounds when the dataclass is made, the schema of a service states them, and `construct` passes the value to
the parameter of the same name of `model_class`, whose default is that of the field (test_one_declaration compares all).

A field without a default is open: None until it is resolved, by the defaults of the data set or by the dataclass itself
(`resolve`), so that whoever reads it, and the file that records it, sees a value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any


def bounded(
    default: Any = None,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    **metadata: Any,
) -> Any:
    """A number, or a tuple of numbers, within bounds; `minimum` and `maximum` are within them, `above` and `below` not.

    None as the default leaves the field open; an error then names the `example`, if there is one.
    """
    bounds = {"minimum": minimum, "above": above, "maximum": maximum, "below": below}
    return field(default=default, metadata={**bounds, **metadata})


def at_least(minimum: float, default: Any = None, *, divides: str | None = None, **metadata: Any) -> Any:
    """A number with a smallest value; it divides the value of the field `divides`."""
    return bounded(default, minimum=minimum, divides=divides, **metadata)


def positive(default: float | None = None, **metadata: Any) -> Any:
    """A finite number above 0."""
    return bounded(default, above=0, **metadata)


def share(default: Any = None) -> Any:
    """A number from 0 to below 1."""
    return bounded(default, minimum=0, below=1)


def inner_share(default: float | None = None) -> Any:
    """A number above 0 and below 1."""
    return bounded(default, above=0, below=1)


def random_seed(default: int | None = None) -> Any:
    """A seed that torch takes."""
    return bounded(default, minimum=0, below=2**63)


def length_exponent() -> Any:
    """The exponent of the length in the score of a beam, 1 if it is left out; larger ones leave the range of floats."""
    return left_open(1, minimum=-10, maximum=10)


def left_open(description: object = "", *, metavar: str | None = None, **bounds: Any) -> Any:
    """A field that is None until it is resolved; `description` says in the help what it becomes."""
    return bounded(None, open=description, metavar=metavar, **bounds)


def positional(default: Any = MISSING, *, metavar: str | None = None, called: str | None = None) -> Any:
    """A field that is typed by its position; `called` is the noun for one of several known words in an error."""
    return field(default=default, metadata={"positional": True, "metavar": metavar, "called": called})


def flag() -> Any:
    """A field that is False unless its bare name is typed."""
    return field(default=False, metadata={"flag": True})


def option(default: Any = MISSING, *, metavar: str) -> Any:
    """A field whose value has a name of its own in the help, such as FOLDER; without a default it must be given."""
    return field(default=default, metadata={"metavar": metavar})


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
