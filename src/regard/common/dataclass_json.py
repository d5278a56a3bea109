"""What a run recorded, brought back: its task, and what it knew of its data.  No torch here."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def dataclass_from_json(of: type[T], told: dict[str, Any]) -> T:
    """The task with these options; raises for one that another version wrote."""
    known = {field.name for field in fields(of)}  # type: ignore[arg-type]
    if unknown := told.keys() - known:
        raise ValueError(
            f"the run has options that this version does not know: {', '.join(sorted(unknown))}; "
            "install the version that trained it, which its run.json names"
        )
    return of(**told)


def dataclass_from_file(of: type[T], path: Path, what: str) -> T:
    """What a run wrote into this file; raises if it is not there, or tells of something else."""
    try:
        return of(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path.parent} holds no {path.name}; name the folder of a training run") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} does not tell of {what} ({error}); restore it, or train in another folder") from error
