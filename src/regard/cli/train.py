"""regard train: a new run, or one that goes on."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli import choose, config, first
from regard.cli.options import MINUTES, parse, part
from regard.tasks.translate import Translate
from regard.train.run import Record
from regard.train.training import Training

TASKS = {"translate": "one sequence into another: your own two text files, or dates, pronunciation, reversal"}
_ABOUT = """`regard train TASK --help` lists the options of a task.
`regard train --resume RUN` goes on with a run, whatever its task; options of training given there hold from now on.
`torchrun --nproc-per-node 2 -m regard train ...` trains with two processes."""


@dataclass(frozen=True)
class New:
    """Train a translator on files of your own (--train) or on embedded data (--data), with any attention.

    Example: regard train translate --train en.txt de.txt --valid en.val de.val --minutes 60 --out runs/en-de

    Ctrl-C saves and says how to go on. The run folder holds all there is: weights, vocabularies, metrics, options.
    """

    out: Path | None = None
    """A new folder for all that the training leaves behind; left open, runs/translate-DATE-TIME."""
    config: Path | None = None
    """A TOML file with options, such as the config.toml of another run; those typed here win over it."""
    task: dict[str, Any] = field(default_factory=dict, metadata=part(Translate))
    training: dict[str, Any] = field(default_factory=dict, metadata=part(Training))


@dataclass(frozen=True)
class Resume:
    """Go on with a run as it was: data, model and training are read from its folder.

    Options of training that are given here hold from now on, such as a larger --steps; the defaults are the run's own.
    """

    resume: Path
    """The folder of the run."""
    training: dict[str, Any] = field(default_factory=dict, metadata=part(Training))


def verb(args: Sequence[str]) -> int:
    resume = any(word == "--resume" or word.startswith("--resume=") for word in args)
    if resume:
        return _resume(args[1:] if args[0] in TASKS else args)
    task = choose("regard train", "TASK", TASKS, args, _ABOUT)
    return 0 if task is None else _new(args[1:])


def chosen(of: type[Any], prog: str, args: Sequence[str]) -> Any:
    """The options that were typed, and where none was those of the file that --config names."""
    typed = parse(of, prog, args)
    return typed if typed.config is None else parse(of, prog, args, config.read(typed.config))


def task_of(choices: dict[str, Any]) -> Translate:
    """Files by their full names: a run goes on wherever the command is given."""
    whole = {name: tuple(path.absolute() for path in choices[name]) for name in ("train", "valid", "test")}
    return Translate(**{**choices, **whole})


def training_of(choices: dict[str, Any], task: Translate) -> tuple[Training, str]:
    """The training, and a sentence on what ends it if nothing was said of that."""
    if any(choices[name] is not None for name in ("steps", "epochs", "minutes")):
        return Training(**choices), ""
    minutes = MINUTES[task.kind]
    end = f"ends after {minutes:g} minutes, as no --steps, --epochs or --minutes is given"
    return Training(**{**choices, "minutes": minutes}), end


def _new(args: Sequence[str]) -> int:
    typed: New = chosen(New, "regard train translate", args)
    task = task_of(typed.task)
    training, end = training_of(typed.training, task)
    run = _folder(training) if typed.out is None else typed.out
    if first():
        if task.data is None and not task.train:
            print("No --train and no --data: dates it is.")
        if end:
            print(f"The training {end}.")
    from regard.cli.fitting import train
    from regard.tasks.build import rehearse

    rehearse(task)
    return train(task, run, training, resume=False)


def _resume(args: Sequence[str]) -> int:
    typed = parse(Resume, "regard train", args)
    record = Record.read(typed.resume)
    typed = parse(Resume, "regard train", args, vars(record.training))
    if record.kind != "Translate":
        raise ValueError(f"{typed.resume} is a run of {record.kind}, which this version does not know; update regard")
    from regard.cli.fitting import train

    return train(Translate.told(record.task), typed.resume, Training(**typed.training), resume=True)


def _folder(training: Training) -> Path:
    """Named after the time: that of the first process, if there are several."""
    from regard.train.distributed import join

    (now,) = join(training.device).share([time.time()])
    return Path("runs") / time.strftime("translate-%Y%m%d-%H%M%S", time.localtime(now))
