"""Dataclasses read back from the JSON that a run recorded. No torch here."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def dataclass_from_json(cls: type[T], values: dict[str, Any]) -> T:
    """The dataclass with these values; raises if another version of regard wrote fields that this one does not have."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    if unknown := values.keys() - known:
        raise ValueError(
            f"the run has options that this version does not know: {', '.join(sorted(unknown))}; "
            "install the version that trained it, which its run.json names"
        )
    return cls(**values)


def dataclass_from_file(cls: type[T], path: Path, content: str) -> T:
    """The dataclass that a run wrote into this file; raises if the file is missing or does not describe `content`."""
    try:
        return cls(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path.parent} holds no {path.name}; name the folder of a training run") from error
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} does not describe {content} ({error}); restore it, or train in another folder"
        ) from error
