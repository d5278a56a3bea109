"""restored: a task out of what a run recorded of it.  No torch here."""

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def restored(of: type[T], told: dict[str, Any]) -> T:
    """The task with these options; raises for one that another version wrote."""
    known = {field.name for field in fields(of)}  # type: ignore[arg-type]
    if unknown := told.keys() - known:
        raise ValueError(
            f"the run has options that this version does not know: {', '.join(sorted(unknown))}; "
            "install the version that trained it, which its run.json names"
        )
    return of(**told)
