"""Refuses output paths that would overwrite an input of the command. No torch here."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from regard.common import json_files


def not_an_input(option: str, path: Path | None, folder: Path, inputs: Mapping[str, Iterable[Path | str]]) -> None:
    """Raises if the path is a file of the run or model in the folder, a file of its data, or one of the `inputs`.

    The keys of `inputs` name the files in the error, such as "a file of --test".
    """
    if path is None or not os.path.exists(path):
        return
    for name, files in [*inputs.items(), *_inputs_of(folder).items()]:
        # os.path, because an input may be a text that is too long for a path or has characters that no path has
        if any(os.path.exists(file) and os.path.samefile(path, file) for file in files):
            raise ValueError(f"{option} {path} is {name} and would be written over; name another file")


def _inputs_of(folder: Path) -> dict[str, list[Path | str]]:
    """The files of a run or of a model's folder, and those of its data."""
    record = folder / "run.json"
    # everything below a run belongs to it; a model may lie in a working directory beside unrelated folders
    paths = folder.rglob("*") if record.exists() else folder.glob("*")
    return {f"a file of {folder}": [path for path in paths if path.is_file()], f"data of {folder}": _data_files(record)}


def _data_files(record: Path) -> list[Path | str]:
    """The data files that a record names; none if it cannot be read, which loading the run reports."""
    if not record.is_file():  # reading a named pipe would wait for its writer
        return []
    try:
        options = json_files.parse(record.read_bytes())["options"]
        fields = [options.get(name) or [] for name in ("train", "valid", "test")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [
        path for field in fields for path in ([field] if isinstance(field, str) else field) if isinstance(path, str)
    ]
