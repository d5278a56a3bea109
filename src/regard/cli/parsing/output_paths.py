"""Refuses output paths that cannot be written, or that would overwrite an input of the command. No torch here."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from regard.common import json_files
from regard.common.suggestions import known


def check_output(
    option: str,
    path: Path | None,
    folder: Path,
    suffixes: Sequence[str] = (),
    inputs: Mapping[str, Iterable[Path | str]] = {},
) -> None:
    """Raises before a model is loaded if the path cannot be written, or has none of the `suffixes`, if there are any;
    or if it is a file of the run or model in the folder, a file of its data, or one of the `inputs`.

    The keys of `inputs` name the files in the error, such as "a file of --test".
    """
    if path is None:
        return
    if path.is_dir():
        example = path / f"output{suffixes[0] if suffixes else '.txt'}"
        raise ValueError(f"{option} {path} is a folder; name a file in it, such as {example}")
    if suffixes:
        known(f"suffix of {option}", path.suffix, suffixes)
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if not os.path.exists(path):
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
