"""Experiment: a table of scores as data, tables/GROUP/NAME.toml.

title, said             of its section on a page, in Markdown
task                    the name of a task; or `measure`, the function that makes all rows without a training
seeds                   trainings of every variant, with the seeds 0, 1, …
[files]                 options that are files below --data FOLDER; `encoder = true` takes --encoder FOLDER
[options] [training]    of `regard train`; threads = 1 unless said otherwise
[variants.NAME]         further `options` and `training`, and where they differ `seeds`, `files`, `config`, `how`;
                        `init` names the variant whose weights it starts with, `scored = false` leaves it out
[evaluate.NAME]         options of `regard evaluate`, for each evaluation; without it one with the defaults
[goal]                  ends trainings at a score, or after some seconds of CPU time
values                  the function that adds values to those of an evaluation
[[rows]] [[tables]] [[pictures]]   see `rows.py`
"""

import difflib
import importlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.training import Goal
from regard.tasks.registry import TASKS
from regard.training.config import TrainingConfig

FOLDER = Path(__file__).parent / "tables"
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Inputs:
    """Folders and options that a command line names."""

    data: Path | None = None
    encoder: Path | None = None
    changes: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """One line of a comparison: what differs from the options of the experiment."""

    options: Options = field(default_factory=dict)
    training: Options = field(default_factory=dict)
    files: Options = field(default_factory=dict)
    seeds: int | None = None
    init: str = ""
    scored: bool = True
    config: str = ""  # the function that makes its configuration from the options
    how: str = ""


@dataclass(frozen=True)
class Experiment:
    """See the module."""

    name: str
    group: str  # the folder of its file, and of its result
    title: str
    said: str = ""
    task: str = ""
    measure: str = ""
    seeds: int = 1
    encoder: bool = False
    files: Options = field(default_factory=dict)
    options: Options = field(default_factory=dict)
    training: Options = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=lambda: {"": Variant()})
    evaluate: Mapping[str, Options] = field(default_factory=lambda: {"": {}})
    goal: Options = field(default_factory=dict)
    weights: str = "best"
    values: str = ""
    packages: Sequence[str] = ()  # that the result names beside torch and regard
    rows: Sequence[Options] = ()
    tables: Sequence[Options] = ()
    pictures: Sequence[Options] = ()

    @staticmethod
    def read(path: Path) -> "Experiment":
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        if "variants" in content:
            content["variants"] = {name: Variant(**each) for name, each in content["variants"].items()}
        return Experiment(name=path.stem, group=path.parent.name, **content)

    def config(self, name: str, seed: int, inputs: Inputs) -> Any:
        """The configuration of a training."""
        variant = self.variants[name]
        options = {**self.options, **self._placed({**self.files, **variant.files}, inputs.data), **variant.options}
        if self.encoder:
            if inputs.encoder is None:
                raise ValueError(f"{self.name} needs --encoder, the folder of a pretrained encoder")
            options["encoder"] = inputs.encoder
        others = {*_TRAINING, "seconds"}
        options |= {option: value for option, value in inputs.changes.items() if option not in others}
        typed = {option: _tuples(value) for option, value in options.items()}
        make: Callable[..., Any] = function(variant.config) if variant.config else TASKS[self.task].of
        return make(**{**typed, "seed": typed.get("seed", 0) + seed})

    def _placed(self, files: Options, folder: Path | None) -> Options:
        if files and folder is None:
            names = ", ".join(str(file) for file in files.values())
            raise ValueError(f"{self.name} needs --data, the folder of {names}")
        assert folder is not None or not files
        return {
            option: [folder / path for path in paths] if isinstance(paths, list) else folder / paths  # type: ignore[operator]
            for option, paths in files.items()
        }

    def training_of(self, name: str, config: Any, changes: Options) -> TrainingConfig:
        """The training of a variant; `changes` are typed."""
        defaults = type(config).training_defaults(config.model, config.dataset)
        chosen = {**self.training, **self.variants[name].training}
        if self.goal:
            chosen["steps"] = 10**6  # more than any budget allows
        typed = {option: value for option, value in changes.items() if option in _TRAINING}
        if typed.keys() & _ENDS:
            chosen = {option: value for option, value in chosen.items() if option not in _ENDS}
        options = {**defaults, "threads": 1, "device": "cpu", **chosen, **typed}
        return TrainingConfig(**{option: _tuples(value) for option, value in options.items()})

    def goal_of(self, config: Any, changes: Options) -> Goal | None:
        """The goal that ends a training; `seconds` of it may be typed."""
        if not self.goal:
            return None
        typed = {option: value for option, value in changes.items() if option == "seconds"}
        return Goal(**{**self.goal, **typed}, is_least=config.metrics[self.goal["score"]])

    def only(self, names: Sequence[str]) -> "Experiment":
        """The experiment with these variants, and those that they start with."""
        if unknown := [name for name in names if name not in self.variants]:
            raise KeyError(f"{self.name} has no variant {unknown[0]!r}; it has {', '.join(self.variants)}")
        needed = {*names, *(self.variants[name].init for name in names)}
        return replace(self, variants={name: each for name, each in self.variants.items() if name in needed})


_TRAINING = {item.name for item in fields(TrainingConfig)}
_ENDS = {"steps", "epochs", "minutes"}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def function(name: str) -> Callable[..., Any]:
    """The function that a file names as `module:function`, a module of `extras`."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"benchmarks.experiments.extras.{module}"), attribute)
    return found


def paths() -> dict[str, Path]:
    """The files of all experiments by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*/*.toml"))}


def find(name: str) -> Experiment:
    """The experiment of this name; raises KeyError with a suggestion."""
    known = paths()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else "--list prints the names"
        raise KeyError(f"no experiment is called {name!r}; {hint}")
    return Experiment.read(known[name])
