"""The earlier run whose best weights and vocabularies a new run starts with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.common import atomic_files, checksums
from regard.training.protocol import TrainableConfig
from regard.training.run_folder import BEST, INITIAL, InitialRun, RunRecord, check_can_train, first_difference


def read_initial_run(path: Path, config: TrainableConfig) -> InitialRun:
    """The facts of an earlier run that a new run records; raises if its weights do not fit the options of the task."""
    record = read_initial_record(path, config.name)
    check_can_train(path)
    check_same_options(record.options, config.weight_options(), path)
    record.check_files(path)
    weights = path / BEST
    if not weights.exists():
        raise FileNotFoundError(
            f"{path} has no {BEST} yet, as it was not validated; train it on: regard train --resume {path}"
        )
    files = [name for name in config.initial_files if (path / name).is_file()]
    return InitialRun(
        run=str(path.absolute()),
        weights=BEST,
        checksum=checksums.of_file(weights),
        files={name: checksums.of_file(path / name) for name in files},
    )


def read_initial_record(path: Path, task: str) -> RunRecord:
    """The record of an earlier run, which must be one of the same task."""
    record = RunRecord.read(path)
    if record.task != task:
        raise ValueError(
            f"{path} is a run of {record.task}, not of {task}; a task starts from a run of its own: name one of {task}"
        )
    return record


def check_same_options(recorded: Mapping[str, Any], options: Mapping[str, Any], path: Path) -> None:
    """Raises at the first option that the weights depend on and that is another one than in the earlier run."""
    kept = {name: recorded[name] for name in options if name in recorded}
    if isinstance(model := options.get("model"), Mapping) and isinstance(kept.get("model"), Mapping):
        kept["model"] = {name: value for name, value in kept["model"].items() if name in model}
    if (difference := first_difference(kept, options)) is not None:
        name, before, now = difference
        raise ValueError(
            f"{name}={now!r} conflicts with {name}={before!r} of {path}, whose weights the run starts with; "
            "leave it out, or train from scratch"
        )


def copy_vocabularies(initial: InitialRun, run: Path) -> None:
    """Copies the vocabularies of the earlier run into the new one, which from then on does not need it for them."""
    folder = run / INITIAL
    if all((folder / name).is_file() and checksums.of_file(folder / name) == c for name, c in initial.files.items()):
        return
    atomic_files.make_folder(folder)
    for name, checksum in initial.files.items():
        _check_unchanged(Path(initial.run) / name, checksum, run)
        atomic_files.write_atomically(folder / name, [(Path(initial.run) / name).read_bytes()])


def weights_file(initial: InitialRun, run: Path) -> Path:
    """The file with the initial weights, of a run that has no checkpoint of its own yet."""
    path = Path(initial.run) / initial.weights
    _check_unchanged(path, initial.checksum, run)
    return path


def _check_unchanged(path: Path, checksum: str, run: Path) -> None:
    if not path.is_file() or checksums.of_file(path) != checksum:
        state = "has changed" if path.is_file() else "is gone"
        raise ValueError(
            f"{path}, which {run} starts with, {state}, and {run} has no checkpoint yet; put the file back, or start "
            "a new run in another folder"
        )
