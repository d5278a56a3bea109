"""regard train: a new run, or one that is resumed."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from regard.cli.main import choose, is_main_process
from regard.cli.parsing import toml_config
from regard.cli.parsing.parser import asks_for_help, parse, unchecked_values
from regard.cli.progress import setup_notice
from regard.common.options.checks import dashed
from regard.common.options.fields import option
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS, config_from_record
from regard.training.config import ENDS, TrainingConfig, lasting
from regard.training.initial_run import check_same_options, read_initial_record
from regard.training.run_folder import RunRecord, check_holds_no_run

SUMMARIES = {name: config.summary for name, config in TASKS.items()}
_ABOUT = """`regard train TASK --help` lists the options of a task.
`regard train --resume RUN` resumes a run of any task; options of training that are given there hold from then on.
`regard train TASK --init-from RUN` starts with the weights of an earlier run of the task, on other data.
`torchrun --nproc-per-node 2 -m regard train ...` trains with two processes."""

T = TypeVar("T")


@dataclass(frozen=True)
class TrainOptions:
    """Train a model on your own data or on an embedded data set.

    Ctrl-C saves a checkpoint and prints how to resume. The run folder holds weights, vocabularies, metrics and options.
    """

    out: Path | None = option(None, metavar="FOLDER")
    """A new folder for the run; if left out, runs/TASK-DATE-TIME."""
    config: Path | None = option(None, metavar="FILE")
    """A TOML file with options, such as the config.toml of a run; typed options win. Paths in it are relative to the
    working directory."""
    init_from: Path | None = option(None, metavar="FOLDER")
    """Start with the best weights of an earlier run of the same task, to train it on other data. Its vocabularies,
    classes and sizes are kept."""
    task: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ResumeOptions:
    """Resume a run: data, model and training are read from its folder.

    Options of training that are given here hold from now on, such as a larger --steps; the defaults are the run's own.
    """

    resume: Path
    """The folder of the run."""
    training: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    if any(word == "--resume" or word.startswith("--resume=") for word in args):
        name, options = (args[0], args[1:]) if args[0] in TASKS else (None, args)
        return _resume(options, name)
    name = choose("regard train", "TASK", SUMMARIES, args, _ABOUT)
    return 0 if name is None else _new(TASKS[name], args[1:])


def parse_task(options: type[T], prog: str, config: type[TaskConfig], args: Sequence[str]) -> T:
    """The options that were typed, then those of the file that --config names, then those of the run that --init-from
    names, then the task's own for training.
    """
    sections: dict[str, type] = {"task": config, "training": TrainingConfig}
    typed = unchecked_values(options, args, sections=sections)
    defaults = toml_config.read(Path(typed["--config"]), sections) if "--config" in typed else {}
    if "--init-from" in typed and options is TrainOptions:
        defaults = _with_initial_options(defaults, config, Path(typed["--init-from"]), typed.get("--model"))
    parsed: Any = parse(options, prog, args, sections=sections, defaults=defaults)
    dataset = "files" if parsed.task.get("train") else parsed.task.get("data") or config.embedded
    proposed = config.training_defaults(parsed.task.get("model"), dataset)
    return replace(parsed, training={**proposed, **parsed.training})


def _with_initial_options(
    options: dict[str, Any], config: type[TaskConfig], run: Path, model: str | None
) -> dict[str, Any]:
    """The options, and those of an earlier run that its weights depend on; `model` is the one that was typed."""
    initial = config_from_record(read_initial_record(run, config.name), run)
    model_options = options.get("model", {})
    if (name := model or model_options.get("name", initial.model_name)) != initial.model_name:
        raise ValueError(
            f"--model {name} conflicts with --model {initial.model_name} of {run}, whose weights the run starts with; "
            "leave it out, or train from scratch"
        )
    run_options = {name: getattr(initial, name) for name in initial.weight_fields}
    return {**run_options, **options, "model": {"name": initial.model_name, **vars(initial.model), **model_options}}


def check_paths_exist(config: TaskConfig, *, with_model: bool = True) -> TaskConfig:
    """The options, if the files that they name exist: raises before anything slow is imported.

    `with_model`: also the paths of the model, such as a pretrained encoder.
    """
    options = [(config, item) for item in fields(config)]  # type: ignore[arg-type]
    options += [(config.model, item) for item in fields(config.model)] if with_model else []
    for owner, item in options:
        value = getattr(owner, item.name)
        noun = "folder" if item.metadata.get("metavar") == "FOLDER" else "file"
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path) and not path.exists():
                raise ValueError(f"there is no {noun} {path}, which {dashed(item.name)} names; name one that is there")
    return config


def training_config(choices: dict[str, Any], config: TaskConfig) -> tuple[TrainingConfig, str]:
    """The training; and, as the rest of a sentence, its end if none was given."""
    choices, note = dict(choices), ""
    if all(choices.get(name) is None for name in ENDS):
        budget = config.budgets[config.dataset]
        if budget.steps is not None:
            choices["steps"], end = budget.steps, f"{budget.steps:,} steps"
        else:
            assert budget.minutes is not None
            choices["minutes"], end = budget.minutes, lasting(budget.minutes)
        note = f"ends after {end}, as no --steps, --epochs or --minutes is given"
    return TrainingConfig(**choices), note


def _new(config_class: type[TaskConfig], args: Sequence[str]) -> int:
    options = parse_task(TrainOptions, f"regard train {config_class.name}", config_class, args)
    # the weights of an encoder are in the run to start from, so its folder may be gone
    is_initial = options.init_from is not None
    config = check_paths_exist(config_class(**options.task).with_absolute_paths(), with_model=not is_initial)
    if options.init_from is not None:
        recorded = read_initial_record(options.init_from, config_class.name).options
        check_same_options(recorded, config.weight_options(), options.init_from)
    training, note = training_config(options.training, config)
    folder = _default_folder(config_class.name, training) if options.out is None else options.out
    if is_main_process():
        check_holds_no_run(folder)  # before anything slow is imported
    reads_data = any(item.name == "data" for item in fields(config_class))  # type: ignore[arg-type]
    if is_main_process() and reads_data and not options.task.get("data") and not options.task.get("train"):
        print(f"No --train or --data given; using the built-in data set '{config.dataset}'.")
    with setup_notice(sys.stdout):
        from regard.cli.train_runner import train

        config.load().check_options()
    note = f"The training {note}." if note else ""
    return train(config, folder, training, resume=False, init_from=options.init_from, note=note)


def _resume(args: Sequence[str], name: str | None) -> int:
    """Resumes a run; `name` is the task that was typed, if any."""
    _check_training_only(args)
    sections: dict[str, type] = {"training": TrainingConfig}
    run = unchecked_values(ResumeOptions, args, sections=sections).get("--resume")
    record = RunRecord.read(Path(run)) if run else None
    recorded = {} if record is None else dict(vars(record.training))
    # the help has the values of the run as defaults
    defaults = recorded if asks_for_help(args) else {}
    options = parse(ResumeOptions, "regard train", args, sections=sections, defaults=defaults)
    assert record is not None
    config = config_from_record(record, options.resume)
    if name not in (None, config.name):
        raise ValueError(
            f"{options.resume} is a run of {config.name}, not of {name}; resume it without a task: "
            f"regard train --resume {shlex.quote(str(options.resume))}"
        )
    # the steps that a task proposed give way to --epochs; --minutes only shortens them
    proposed = config.budgets[config.dataset].steps
    if (
        options.training.get("epochs") is not None
        and recorded["epochs"] is None
        and recorded["steps"] is not None
        and recorded["steps"] == proposed
    ):
        recorded["steps"] = None
    if options.training.get("schedule", recorded["schedule"]) != "plateau":
        recorded |= {"plateau_factor": None, "plateau_patience": None}
    with setup_notice(sys.stdout):
        from regard.cli.train_runner import train

    return train(config, options.resume, TrainingConfig(**{**recorded, **options.training}), resume=True)


def _check_training_only(args: Sequence[str]) -> None:
    """Raises for options of a new run that a resumed one cannot change."""
    models = [model for config in TASKS.values() for model in config.models.values()]
    options: list[Any] = [TrainOptions, *TASKS.values(), *models]
    fixed = {item.name for each in options for item in fields(each)}
    fixed -= {item.name for item in fields(TrainingConfig)}
    for word in args[: args.index("--") if "--" in args else None]:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in fixed:
            raise ValueError(
                f"{dashed(name)} was fixed when the run began, as its data and its model were; --resume "
                "changes options of training alone, such as --steps: leave it out, or begin a run without --resume"
            )


def _default_folder(task: str, training: TrainingConfig) -> Path:
    """Named after the time: that of the first process, if there are several."""
    from regard.training.runtime.distributed import join

    (now,) = join(training.device).broadcast([time.time()])
    return Path("runs") / time.strftime(f"{task}-%Y%m%d-%H%M%S", time.localtime(now))
