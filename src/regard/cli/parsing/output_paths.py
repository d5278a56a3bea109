"""What is written is none of what is read.  No torch here."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def not_an_input(option: str, path: Path | None, folder: Path, inputs: Mapping[str, Iterable[Path | str]]) -> None:
    """Refuses to write over a file that is read: any of the run or model in the folder, or of the `inputs`, which are
    named by what each is, such as "a file of --test"."""
    if path is None or not os.path.exists(path):
        return
    for what, files in [*inputs.items(), *_read_by(folder).items()]:
        # os.path, since a text may be too long for a name, or have letters that no name has
        if any(os.path.exists(file) and os.path.samefile(path, file) for file in files):
            raise ValueError(f"{option} {path} is {what} and would be written over; name another file")


def _read_by(folder: Path) -> dict[str, list[Path | str]]:
    """The files of a run, or of the folder of a model, and those of its data."""
    record = folder / "run.json"
    # a model may lie where one works, beside folders of other things; all below a run is the run's
    own = folder.rglob("*") if record.exists() else folder.glob("*")
    return {f"a file of {folder}": [path for path in own if path.is_file()], f"data of {folder}": _data(record)}


def _data(record: Path) -> list[Path | str]:
    """Files of the data, as far as the record can be read: who loads the run tells what is wrong with it."""
    try:
        task = json.loads(record.read_bytes())["task"]
        named = [task.get(name) or [] for name in ("train", "valid", "test")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [path for one in named for path in ([one] if isinstance(one, str) else one) if isinstance(path, str)]
