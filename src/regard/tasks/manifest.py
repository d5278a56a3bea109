"""manifest.json: SHA-256 of the files that the answers of a run depend on, and a few inputs with their outputs.

    write(loaded, ["a good film"])      beside the run, before it is copied to the machine that serves it
    check(loaded)                       on that machine; raises if a file or an answer is another one

Checksums inside of the files notice damage; this notices any change of a run whose manifest came with it.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.common import atomic_files, json_files
from regard.inference.text_predictor import TextPredictor
from regard.tasks.loading import LoadedRun, weights_path
from regard.training.run_folder import INITIAL, RECORD

FILE, EXAMPLES = "manifest.json", "examples"
FORMAT = 1
# a number of an output may differ by this much, and by this share of it, on another machine
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class CheckResult:
    """A run whose files and answers are those of its manifest; without one, that were read and tried at all."""

    version: str
    has_manifest: bool
    files: int
    examples: int  # stored inputs that were predicted
    weights: str
    step: int


def model_files(loaded: LoadedRun) -> list[Path]:
    """The files that the answers of a loaded run depend on."""
    folder = loaded.folder
    if not (folder / RECORD).exists():  # a released model
        return sorted(path for path in folder.iterdir() if path.is_file() and path.name != FILE)
    names = [RECORD, weights_path(folder, loaded.weights).name, *loaded.config.run_files]  # type: ignore[arg-type]
    initial = sorted((folder / INITIAL).glob("*")) if (folder / INITIAL).is_dir() else []
    paths = [*(folder / name for name in dict.fromkeys(names)), *initial]
    return [path for path in paths if path.is_file()]


def signature(folder: Path) -> Sequence[tuple[object, ...]]:
    """Sizes, times and places of the files of a folder: another one if any of them was written or exchanged."""
    paths = sorted(path for path in folder.resolve().glob("*") if path.is_file())
    stats = [(path, path.stat()) for path in paths]
    return [(str(path), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in stats]


def version(loaded: LoadedRun) -> str:
    """The step of the weights, and twelve digits that are others if any file is another one."""
    return _version(loaded, _hashes(loaded))


def write(loaded: LoadedRun, inputs: Sequence[str]) -> Path:
    """Writes the manifest with the outputs for these inputs; files that are inputs are copied into the run.

    An output that depends on chance is left out.
    """
    stored = []
    for argument in inputs:
        if loaded.config.input_kind.is_file:
            argument = _copy(Path(argument), loaded.folder)
        output = _predict(loaded, argument)
        if _difference(output, _predict(loaded, argument)) is None:
            stored.append({"input": argument, "output": output})
    hashes = _hashes(loaded)
    content = {
        "format": FORMAT,
        "version": _version(loaded, hashes),
        "weights": loaded.weights,
        "step": loaded.step,
        "files": hashes,
        "examples": stored,
    }
    path = loaded.folder / FILE
    atomic_files.write_atomically(path, [json.dumps(content, indent=2, ensure_ascii=False).encode()])
    return path


def check(loaded: LoadedRun, answers: bool = True) -> CheckResult:
    """Compares the files of a loaded run with its manifest, and its `answers`, which weights rounded on loading change;
    without a manifest, it answers an example at all."""
    hashes, path = _hashes(loaded), loaded.folder / FILE
    present = _version(loaded, hashes)
    if not path.exists():
        _predict_example(loaded)
        return CheckResult(present, False, len(hashes), 0, loaded.weights, loaded.step)
    manifest = _read(path)
    if manifest["weights"] != loaded.weights:
        raise ValueError(
            f"{path} is about the {manifest['weights']} weights of the run, and the {loaded.weights} weights are "
            "loaded; load those, or write it anew: regard check RUN --write-manifest"
        )
    for name, recorded in manifest["files"].items():
        if name not in hashes:
            raise ValueError(f"{loaded.folder / name} is missing, and {FILE} lists it; copy the whole run")
        if hashes[name] != recorded:
            raise ValueError(
                f"{loaded.folder / name} is another file than {FILE} lists: its SHA-256 is {hashes[name][:12]}…, not "
                f"{recorded[:12]}…; copy the run again, or write the manifest anew: regard check RUN --write-manifest"
            )
    if extra := sorted(hashes.keys() - manifest["files"].keys()):
        raise ValueError(f"{loaded.folder / extra[0]} is not listed in {FILE}; remove it, or write the manifest anew")
    examples = manifest["examples"] if answers else []
    for example in examples:
        where = _difference(example["output"], _predict(loaded, example["input"]))
        if where is not None:
            raise ValueError(
                f"{loaded.folder} does not answer {example['input'][:80]!r} as {FILE} says: {where}; its versions of "
                "torch or regard may be others; write the manifest anew if the answer is right"
            )
    return CheckResult(present, True, len(hashes), len(examples), loaded.weights, loaded.step)


def _hashes(loaded: LoadedRun) -> dict[str, str]:
    """SHA-256 of the files, by their names in the folder."""
    hashes = {}
    for path in model_files(loaded):
        with open(path, "rb") as file:
            hashes[path.relative_to(loaded.folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def _version(loaded: LoadedRun, hashes: Mapping[str, str]) -> str:
    return f"{loaded.step}-{hashlib.sha256(json.dumps(sorted(hashes.items())).encode()).hexdigest()[:12]}"


def _read(path: Path) -> dict[str, Any]:
    """The manifest; ValueError in one sentence if it is damaged."""
    try:
        if not path.is_file():
            raise ValueError("it is no file")
        content = json_files.parse(path.read_bytes())
        is_whole = (
            isinstance(content, dict)
            and isinstance(content.get("weights"), str)
            and isinstance(files := content.get("files"), dict)
            and all(isinstance(value, str) for value in files.values())
            and isinstance(examples := content.get("examples"), list)
            and all(isinstance(each, dict) and isinstance(each.get("input"), str) for each in examples)
            and all("output" in each for each in examples)
        )
        if not is_whole or type(content.get("format")) is not int:
            raise ValueError("it must have format, weights, files and examples")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); write it anew: regard check RUN --write-manifest") from None
    json_files.check_format(path, content["format"], FORMAT)
    return content


def _copy(source: Path, folder: Path) -> str:
    """Copies an example into the run; returns its path there."""
    target = folder / EXAMPLES / source.name
    if not (target.exists() and target.samefile(source)):
        atomic_files.make_folder(target.parent)
        shutil.copyfile(source, target)
    return f"{EXAMPLES}/{source.name}"


def _predict(loaded: LoadedRun, argument: str) -> Any:
    """The output for an input, as values of JSON."""
    predictor = loaded.predictor
    if loaded.config.input_kind.is_file:
        argument = str(_file_of_run(loaded.folder, argument))
    (output,) = predictor.predict([predictor.read(argument)], loaded.config.Predict())
    return json.loads(json.dumps(predictor.json(output)))


def _file_of_run(folder: Path, name: str) -> Path:
    """The file of an example; ValueError for a name that leads out of the run, or to no file."""
    path = (folder / name).resolve()
    if not (path.is_relative_to(folder.resolve()) and path.is_file()):
        raise ValueError(
            f"the example {name[:80]!r} of {folder / FILE} is no file of the run; copy the whole run, or write the "
            "manifest anew: regard check RUN --write-manifest"
        )
    return path


def _predict_example(loaded: LoadedRun) -> None:
    """Predicts for an input of its own, if the predictor has one."""
    predictor = loaded.predictor
    example = predictor.example() if isinstance(predictor, TextPredictor) else predictor.blank()
    if example is not None:
        predictor.predict([example], loaded.config.Predict())


def _difference(recorded: Any, present: Any, where: str = "the output") -> str | None:
    """The first value that differs by more than another machine explains, in words."""
    if isinstance(recorded, Mapping) and isinstance(present, Mapping) and recorded.keys() == present.keys():
        each = (_difference(recorded[name], present[name], name) for name in recorded)
        return next((difference for difference in each if difference is not None), None)
    if isinstance(recorded, list) and isinstance(present, list) and len(recorded) == len(present):
        each = (_difference(a, b, where) for a, b in zip(recorded, present, strict=True))
        return next((difference for difference in each if difference is not None), None)
    if isinstance(recorded, int | float) and isinstance(present, int | float):
        is_equal = math.isclose(recorded, present, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    else:
        is_equal = recorded == present
    return None if is_equal else f"{where} was {str(recorded)[:80]!r} and is {str(present)[:80]!r}"
