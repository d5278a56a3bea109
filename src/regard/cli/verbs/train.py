"""regard train: a new run, or one that goes on."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from regard.cli.main import choose, first
from regard.cli.parsing import toml_config
from regard.cli.parsing.options import parse, part
from regard.tasks import registry
from regard.tasks.registry import TASKS, Kind
from regard.training.config import ENDS, PLANNED, TrainingConfig, lasting
from regard.training.run_folder import RunRecord

ABOUT = {
    "translate": "one sequence into another: your own two text files, or dates, pronunciation, reversal",
    "classify-image": "which class is a picture of: folders of pictures, IDX files, or written digits",
    "caption": "what does a picture show, in words: pictures with captions, or scenes of written digits",
    "glimpse": "which class is a picture of, seen through a few glimpses, and where to look for it",
    "generate": "new pictures of a class that is asked for: folders of pictures, IDX files, or written digits",
}
_ABOUT = """`regard train TASK --help` lists the options of a task.
`regard train --resume RUN` goes on with a run, whatever its task; options of training given there hold from now on.
`torchrun --nproc-per-node 2 -m regard train ...` trains with two processes."""


@dataclass(frozen=True)
class New:
    """Train a model on data of your own or on embedded data.

    Ctrl-C saves and says how to go on. The run folder holds all there is: weights, vocabularies, metrics, options.
    """

    out: Path | None = None
    """A new folder for all that the training leaves behind; left open, runs/TASK-DATE-TIME."""
    config: Path | None = None
    """A TOML file with options, such as the config.toml of a run; those typed win. Its paths start where you are."""
    task: dict[str, Any] = field(default_factory=dict, metadata=part())
    training: dict[str, Any] = field(default_factory=dict, metadata=part(TrainingConfig))


@dataclass(frozen=True)
class Resume:
    """Go on with a run as it was: data, model and training are read from its folder.

    Options of training that are given here hold from now on, such as a larger --steps; the defaults are the run's own.
    """

    resume: Path
    """The folder of the run."""
    training: dict[str, Any] = field(default_factory=dict, metadata=part(TrainingConfig))


def verb(args: Sequence[str]) -> int:
    resume = any(word == "--resume" or word.startswith("--resume=") for word in args)
    if resume:
        return _resume(args[1:] if args[0] in TASKS else args)
    task = choose("regard train", "TASK", ABOUT, args, _ABOUT)
    return 0 if task is None else _new(task, args[1:])


def chosen(of: type[Any], verb: str, task: str, args: Sequence[str]) -> Any:
    """The options that were typed, and where none was those of the file that --config names, or the task's own."""
    prog, kind = f"regard {verb} {task}", TASKS[task]
    own = kind.TRAINING
    typed = parse(of, prog, args, own, task=kind)
    if typed.config is None:
        return typed
    given = toml_config.read(typed.config, {"task": kind, "training": TrainingConfig})
    return parse(of, prog, args, own | given, task=kind)


def there(task: Kind) -> Kind:
    """The task, if the files that it names are there: told at once, before anything is imported that takes long."""
    for one in fields(task):
        given = getattr(task, one.name)
        kind = "folder" if one.metadata.get("metavar") == "FOLDER" else "file"
        for path in given if isinstance(given, tuple) else (given,):
            if isinstance(path, Path) and not path.exists():
                option = f"--{one.name.replace('_', '-')}"
                raise ValueError(f"there is no {kind} {path}, which {option} names; name one that is there")
    return task


def training_of(choices: dict[str, Any], task: Kind) -> tuple[TrainingConfig, str]:
    """The training, and what it is if nothing was said of its end, or minutes alone, as the rest of a sentence."""
    told = []
    if all(choices[name] is None for name in ENDS):
        if (steps := task.STEPS.get(task.kind)) is not None:
            choices, end = {**choices, "steps": steps}, f"{steps:,} steps"
        else:
            minutes = task.MINUTES[task.kind]
            choices, end = {**choices, "minutes": minutes}, lasting(minutes)
        told.append(f"ends after {end}, as no --steps, --epochs or --minutes is given")
    own = task.TRAINING.get("schedule")
    if own in PLANNED and choices.get("schedule") == own and choices["steps"] is None and choices["epochs"] is None:
        choices = {**choices, "schedule": TrainingConfig.schedule}
        told.append(
            f"has the schedule {TrainingConfig.schedule}, as minutes alone do not tell {own} how many steps there are"
        )
    return TrainingConfig(**choices), " and ".join(told)


def _new(name: str, args: Sequence[str]) -> int:
    typed: New = chosen(New, "train", name, args)
    task = there(TASKS[name](**typed.task).placed())
    training, end = training_of(typed.training, task)
    run = _folder(name, training) if typed.out is None else typed.out
    if first():
        if not task.named:
            print(f"No --train and no --data: {task.kind} it is.")
        if end:
            print(f"The training {end}.")
    from regard.cli.train_runner import train

    task.rehearse()
    return train(task, run, training, resume=False)


def _resume(args: Sequence[str]) -> int:
    _same_task(args)
    typed = parse(Resume, "regard train", args)
    record = RunRecord.read(typed.resume)
    task = registry.told(record.kind, record.task, typed.resume)
    given = vars(record.training)
    # the end that a task proposed gives way to passes that are typed; minutes only shorten it
    proposed = task.STEPS.get(task.kind)
    if typed.training["epochs"] is not None and given["epochs"] is None and given["steps"] == proposed:
        given = {**given, "steps": None}
    typed = parse(Resume, "regard train", args, given)
    from regard.cli.train_runner import train

    return train(task, typed.resume, TrainingConfig(**typed.training), resume=True)


def _same_task(args: Sequence[str]) -> None:
    """Refuses what a run cannot change: options of a new one that are none of training."""
    kept = {one.name for of in (New, *TASKS.values()) for one in fields(of)} - {
        one.name for one in fields(TrainingConfig)
    }
    for word in args[: args.index("--") if "--" in args else None]:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in kept:
            raise ValueError(
                f"--{name.replace('_', '-')} was settled when the run began, as its data and its model were; --resume "
                "changes options of training alone, such as --steps: leave it out, or begin a run without --resume"
            )


def _folder(task: str, training: TrainingConfig) -> Path:
    """Named after the time: that of the first process, if there are several."""
    from regard.training.runtime.distributed import join

    (now,) = join(training.device).share([time.time()])
    return Path("runs") / time.strftime(f"{task}-%Y%m%d-%H%M%S", time.localtime(now))
