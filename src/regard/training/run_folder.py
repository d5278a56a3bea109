"""The folder of a run: the names of its files, and run.json.

run.json                    the task and its options, the training and its changes, versions, threads
config.toml                 the same options, for `regard train TASK --config`
metrics.jsonl               one line of JSON per logged step and per validation
last.safetensors            weights, moments and TrainingState: all that resuming needs
best.safetensors            the weights of the best validation
earlier-best.safetensors    the best weights of a run that lost last.safetensors and started over
average.safetensors         the mean of the last validated weights, if `average` is set
validated/STEP.safetensors  the weights of these validations
samples/STEP.png            outputs of the model at every validation, if the task draws any
memory.json                 the peak memory of its processes
baselines.json              the scores of baselines on the validation data, if the task has any
quantization.json           the loss of 8-bit weights, of a run that has them instead of a training
tensorboard/                if `tensorboard` is set
manifest.json               SHA-256 of the files and stored answers, by `regard check RUN --write-manifest`
examples/                   files of which the manifest has the answers
initial/                    vocabularies of the run that it was initialised from, if it was
…                           the files of the task, such as its tokens
"""

import dataclasses
import json
import platform
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.common import atomic_files, checksums, json_files
from regard.training.config import MAX_THREADS, TrainingConfig
from regard.training.protocol import BaselineReport, TrainableConfig

FORMAT = 3
RECORD, CONFIG, METRICS, MEMORY = "run.json", "config.toml", "metrics.jsonl", "memory.json"
LAST, BEST, AVERAGE = "last.safetensors", "best.safetensors", "average.safetensors"
EARLIER_BEST = "earlier-best.safetensors"
VALIDATED, SAMPLES, TENSORBOARD, INITIAL = "validated", "samples", "tensorboard", "initial"
QUANTIZATION, BASELINES = "quantization.json", "baselines.json"


@dataclass(frozen=True)
class TrainingChange:
    """The training from this step on."""

    step: int
    training: TrainingConfig


@dataclass(frozen=True)
class InitialRun:
    """The run that a run was initialised from: its folder, the file of its weights, and checksums."""

    run: str
    weights: str
    checksum: str  # checksum of the weights
    files: dict[str, str]  # checksums of the vocabularies, by name


def initial_folder(run: Path) -> Path | None:
    """The vocabularies of the run that this one was initialised from; None if it was not."""
    return path if (path := run / INITIAL).is_dir() else None


@dataclass(frozen=True)
class RunRecord:
    """run.json: everything needed to repeat a run, with a checksum of the file."""

    task: str
    options: dict[str, Any]  # the layout of TrainableConfig.to_json, with the options that the data decided
    training: TrainingConfig
    threads: int | None
    versions: dict[str, str]
    history: tuple[TrainingChange, ...]  # more than one if a resume changed the training
    # checksums of the task's files by name; safetensors files have their own
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    format: int = FORMAT
    initial: InitialRun | None = None

    @staticmethod
    def of(config: TrainableConfig, training: TrainingConfig, initial: InitialRun | None = None) -> "RunRecord":
        """The record of a new run."""
        history = (TrainingChange(0, training),)
        return RunRecord(
            config.name, _options(config), training, training.threads, _versions(), history, initial=initial
        )

    def write(self, run: Path) -> None:
        atomic_files.write_atomically(run / RECORD, [json_files.with_checksum(dataclasses.asdict(self))])

    @staticmethod
    def read(run: Path) -> "RunRecord":
        path = run / RECORD
        if not run.is_dir():
            problem = f"{run} is a file, no run" if run.exists() else f"there is no run {run}"
            raise FileNotFoundError(f"{problem}; name the folder of a training")
        if not path.exists():
            # a comparison leaves a folder of runs
            inside = sorted(str(record.parent) for record in run.glob(f"*/{RECORD}"))
            way_out = f"name one of those in it: {', '.join(inside)}" if inside else "name the folder of a training"
            raise FileNotFoundError(f"{run} holds no run: there is no {RECORD} in it; {way_out}")
        for entry in sorted(run.iterdir()):
            if entry.exists() and not entry.is_file() and not entry.is_dir():
                # reading a named pipe would wait for its writer, and a device may have no end
                raise ValueError(f"{entry} is no file; remove it, or name the folder of a training")
        if not path.is_file():
            raise ValueError(f"{path} is no file; restore it, or name the folder of a training")
        content = _parse(path)
        try:
            record = _decode(content)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} cannot be read ({error}); restore it, or train in another folder") from error
        if unknown := content["training"].keys() - {field.name for field in dataclasses.fields(TrainingConfig)}:
            names = ", ".join(sorted(unknown))
            raise ValueError(f"{path} has options of training that this version does not know: {names}; update regard")
        return record

    def changed_versions(self) -> list[tuple[str, str, str]]:
        """Name, recorded and present version of what is another one now; of Python the third number does not count."""
        present = _versions()
        recorded = {name: self.versions.get(name, "unknown") for name in present}
        return [
            (name, recorded[name], version)
            for name, version in present.items()
            if version != recorded[name]
            and (name != "python" or version.rpartition(".")[0] != recorded[name].rpartition(".")[0])
        ]

    def check_files(self, run: Path) -> None:
        """Raises if a file of the task is another one than at the last start of the training."""
        initial = {} if self.initial is None else self.initial.files
        for name, checksum in [*self.files.items(), *((f"{INITIAL}/{name}", c) for name, c in initial.items())]:
            if (run / name).is_file() and checksums.of_file(run / name) != checksum:
                raise ValueError(
                    f"{run / name} has changed since the training wrote it: its checksum is not the one in {RECORD}; "
                    "restore it, or train in another folder"
                )

    def with_files(self, run: Path, names: Sequence[str]) -> "RunRecord":
        """The same with the checksums of these files, those that exist; safetensors files have their own."""
        kept = [name for name in names if not name.endswith(".safetensors") and (run / name).is_file()]
        return dataclasses.replace(self, files={name: checksums.of_file(run / name) for name in kept})

    def changed_option(self, config: TrainableConfig) -> tuple[str, Any, Any] | None:
        """The first option that differs between the record and a task, with both values; None if all agree.

        An option that is None in the task agrees with any value, and so does one that the record does not have.
        """
        return first_difference(self.options, _options(config))

    def changed_config(self, run: Path) -> tuple[str, Any, Any] | None:
        """The first option that config.toml has another value of, with both values; None if all agree.

        A file that cannot be read, and an option that it does not have, change nothing.
        """
        try:
            content = tomllib.loads((run / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        tables = _toml_value({"task": self.options, "training": dataclasses.asdict(self.training)})
        return first_difference(_shared(tables, content), content)

    def resumed(self, config: TrainableConfig, training: TrainingConfig, step: int, run: Path) -> "RunRecord":
        """The record of the run resumed at a step: the task must be the same, the training may be another."""
        if config.name != self.task:
            raise ValueError(
                f"{run} is a run of {self.task}, not of {config.name}; resume it as that, or take another folder"
            )
        if (changed := self.changed_option(config)) is not None:
            name, recorded, now = changed
            raise ValueError(
                f"{name} was {recorded!r} when {run} began and is {now!r} now; "
                "resume with the same task, or train in another folder"
            )
        options = _merge(_options(config), self.options)
        if training.steps is not None and training.steps < step:
            raise ValueError(
                f"steps={training.steps} lies before step {step}, where {run} stands; give more steps, or leave it out"
            )
        history = tuple(change for change in self.history if change.step < step or change.step == 0)
        if history[-1].training != training:
            history = (*(change for change in history if change.step < step), TrainingChange(step, training))
        return RunRecord(config.name, options, training, self.threads, _versions(), history, initial=self.initial)

    def with_options(self, options: Mapping[str, Any] | None) -> "RunRecord":
        """The same with these options, such as those that the data decided."""
        return dataclasses.replace(self, options=_merge(self.options, options or {}))


def write_config(
    path: Path,
    config: TrainableConfig,
    training: TrainingConfig,
    resolved: Mapping[str, Any] | None = None,
    initial: InitialRun | None = None,
) -> None:
    """Writes all options as TOML, so that a repetition does not depend on the defaults of a later version.

    `resolved` are options that the data decided, in the layout of the task's `to_json`.
    """
    try:
        import tomli_w
    except ImportError as error:
        raise ImportError(f"{CONFIG} needs tomli_w; install it with: pip install 'regard[train]'") from error
    tables = config_tables(config, training, resolved)
    comment = "# All options of this run; regard train TASK --config reads them.\n"
    if initial is not None:
        comment += f"# It was initialised by --init-from {json.dumps(initial.run)}, which a repetition needs as well.\n"
    comment += "\n"
    atomic_files.write_atomically(path, [(comment + tomli_w.dumps(tables)).encode()])


def config_tables(
    config: TrainableConfig, training: TrainingConfig, resolved: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The content of config.toml: the tables of the options."""
    tables = {"task": _merge(_options(config), resolved or {}), "training": dataclasses.asdict(training)}
    return _toml_value(tables)


def _shared(options: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a file also has."""
    return {
        name: _shared(value, content[name])
        if isinstance(value, Mapping) and isinstance(content[name], Mapping)
        else value
        for name, value in options.items()
        if name in content
    }


def _toml_value(value: Any) -> Any:
    """The value with names as a command line types them; TOML has no null, so None becomes "None"."""
    if isinstance(value, Mapping):
        return {name.replace("_", "-"): _toml_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_toml_value(item) for item in value]
    return "None" if value is None else value


def _parse(path: Path) -> dict[str, Any]:
    """The JSON of a record, whose format is that of this version and whose checksum matches.

    A user who edits a record sets its checksum to null.
    """
    data = path.read_bytes()
    try:
        content = json_files.parse(data)
        if not isinstance(content, dict):
            raise ValueError("it must be fields by name")
        version = content.get("format")
        if type(version) is not int or version < 1:
            raise ValueError(f"format must be a whole number from 1, got {reprlib.repr(version)}")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); restore it, or train in another folder") from error
    json_files.check_format(path, version, FORMAT)
    try:
        if checksums.NAME not in content:
            raise ValueError("its checksum is missing")
        if content[checksums.NAME] is not None:
            checksums.check(data, content[checksums.NAME])
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged or was edited ({error}); restore it, or if you edited it, set its checksum to null"
        ) from error
    return content


def _decode(content: dict[str, Any]) -> RunRecord:
    try:
        import msgspec
    except ImportError as error:
        raise ImportError(f"{RECORD} needs msgspec; install it with: pip install 'regard[train]'") from error
    # convert, not json.decode: a recorded number may be infinite, and msgspec's JSON has no infinity
    record = msgspec.convert(content, RunRecord)
    names = [] if record.initial is None else [record.initial.weights, *record.initial.files]
    if others := [name for name in names if Path(name).name != name]:
        raise ValueError(f"the files of its initial run must be names without a folder, got {reprlib.repr(others[0])}")
    steps = [change.step for change in record.history]
    if steps[:1] != [0] or steps != sorted(set(steps)):
        raise ValueError(f"history must have rising steps from 0 on, got {reprlib.repr(steps)}")
    if record.threads is not None and not 1 <= record.threads <= MAX_THREADS:
        raise ValueError(f"threads must be from 1 to {MAX_THREADS}, got {record.threads}")
    return record


def _options(config: TrainableConfig) -> dict[str, Any]:
    """The options of a task as JSON holds them: tuples are lists."""
    return json.loads(json.dumps(config.to_json()))


def _merge(options: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """The options with those of the overlay, nested ones merged."""
    merged = dict(options)
    for name, value in overlay.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if nested else value
    return merged


def first_difference(
    recorded: Mapping[str, Any], options: Mapping[str, Any], parent: str = ""
) -> tuple[str, Any, Any] | None:
    """The name and the two values of the first option that differs.

    Options of a model go by their own names, and its "name" by that of the option that chooses it, which is the first
    to be compared: with another model all its options would differ.
    """
    for name in sorted(recorded, key=lambda name: name != "name"):
        before, now = recorded[name], options.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            if (nested := first_difference(before, now, name)) is not None:
                return nested
        elif before != now and (now is not None or name not in options):
            return (parent if parent and name == "name" else name), before, now
    return None


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("regard", "torch", "numpy")}}


def check_can_train(run: Path) -> None:
    """Raises for a run with 8-bit weights."""
    if (run / QUANTIZATION).exists():
        raise ValueError(f"{run} has 8-bit weights, which cannot be trained; take the run that it was made from")


def check_holds_no_run(run: Path) -> None:
    """Raises if the folder holds a run, which a new one would write over, or is no folder."""
    if run.exists() and not run.is_dir():
        raise NotADirectoryError(f"{run} is a file, and a run is a folder; take another name")
    if (run / RECORD).exists() or (run / LAST).exists():
        raise FileExistsError(f"{run} holds a run already; resume it (--resume {run}), or take another folder")


def write_baselines(report: BaselineReport, run: Path) -> None:
    content = {name: value for name, value in dataclasses.asdict(report).items() if name != "advice"}
    atomic_files.write_atomically(run / BASELINES, [json.dumps(content, ensure_ascii=False).encode(), b"\n"])
