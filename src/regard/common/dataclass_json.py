"""Dataclasses as values of JSON and back, checked by msgspec. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

T = TypeVar("T")


def to_json(value: Any, but: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass as values of JSON; `but` are left out."""
    values = {item.name: getattr(value, item.name) for item in fields(value) if item.name not in but}
    # through bytes, so that tuples become lists, as they are read back
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values, enc_hook=_encode))
    return plain


def fields_from_json(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of JSON as the types of a dataclass's fields.

    Raises if another version of regard wrote fields that this one does not have, or a value is of another type.
    """
    names = {item.name for item in fields(cls)}
    if unknown := values.keys() - names:
        raise ValueError(
            f"the run has options that this version does not know: {', '.join(sorted(unknown))}; "
            "install the version that trained it, which its run.json names"
        )
    hints = _hints(cls)
    return {name: _convert(name, value, hints[name]) for name, value in values.items()}


def dataclass_from_json(cls: type[T], values: Mapping[str, Any]) -> T:
    """The dataclass with these values of JSON."""
    return cls(**fields_from_json(cls, values))


def dataclass_from_file(cls: type[T], path: Path, content: str) -> T:
    """The dataclass that a run wrote into this file; raises if the file is missing or does not describe `content`."""
    try:
        return dataclass_from_json(cls, msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path.parent} holds no {path.name}; name the folder of a training run") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} does not describe {content} ({error}); restore it, or train in another folder"
        ) from error


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def parse_number(cls: type, name: str, text: str) -> str | int | float:
    """The text of a field as a number, if the field holds numbers and no text; raises if it is none."""
    hint = _hints(cls)[name]
    kinds = {hint, *get_args(hint)}
    kind = next((kind for kind in (int, float) if kind in kinds), None)
    if kind is None or str in kinds:
        return text
    try:
        return kind(text)
    except ValueError as error:
        wanted = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{name} must be {wanted}, got {text!r}; try 1,2,4") from error


def _convert(name: str, value: Any, hint: Any) -> Any:
    # None is an open field, which is filled when the dataclass is made
    if value is None:
        return None
    try:
        return msgspec.convert(value, hint, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name} is {value!r}, which is of a wrong type ({error}); restore the file") from error


def _encode(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} is no value of JSON")


def _decode(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"{value!r} is no {kind.__name__}")
