"""The options of verbs that load a run: those of the verb, of the run's task, and of the loading.  No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from regard.cli.main import TASK_OPTIONS
from regard.cli.output import note
from regard.cli.parsing.parser import asks_for_help, parse, positionals
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import left_open
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.registry import TASKS, read_config

if TYPE_CHECKING:
    from regard.tasks.loading import LoadedRun

T = TypeVar("T")


@dataclass(frozen=True)
class LoadOptions(CheckedOptions):
    """The weights of a run, and where to compute."""

    weights: Literal["best", "last", "average"] | None = left_open("best")
    """For a run: the weights of the best validation, of the last step, or their average if one was made."""
    threads: int | None = left_open("as many as the training found best", minimum=1)
    """Threads of the processor."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    quantization: Literal["int8"] | None = left_open("the weights as they are")
    """Round the weights to 8 bits when they are loaded: less memory, and faster on a processor."""


def parse_with_run(
    options: type[T], verb: str, args: Sequence[str], tasks: Mapping[str, type[TaskConfig]] = TASKS
) -> tuple[T, TaskConfig]:
    """The options of a verb, and the options of the run that its first word names."""
    parsed, (config, *_) = parse_with_runs(options, verb, args, tasks, most=1)
    return parsed, config


def parse_with_runs(
    options: type[T],
    verb: str,
    args: Sequence[str],
    tasks: Mapping[str, type[TaskConfig]] = TASKS,
    most: int | None = None,
) -> tuple[T, list[TaskConfig]]:
    """The options of a verb, and those of the runs that its words name: all words, or `most` of them.

    Further options, of the tasks of the runs (`TASK_OPTIONS`), are in the field `task` of the result, those of
    LoadOptions in the field `load`, both as dicts of what was typed. Without a run, or a folder of it, the help lists
    the options of all `tasks`.
    """
    prog, nested = f"regard {verb}", TASK_OPTIONS[verb]
    options_by_task = {name: getattr(config, nested) for name, config in tasks.items()}
    words = positionals([options, LoadOptions, *options_by_task.values()], args)[:most]
    folders = [Path(word) for word in words]
    if folders and all(words) and not (asks_for_help(args) and not all(folder.is_dir() for folder in folders)):
        configs = [read_config(folder) for folder in folders]
        sections = {"task": _joined([getattr(config, nested) for config in configs]), "load": LoadOptions}
        return parse(options, prog, args, sections=sections), configs
    # prints the help, or raises for the run that is missing or empty
    parse(options, prog, args, sections={"task": NoOptions, **options_by_task, "load": LoadOptions})
    raise AssertionError


def _joined(options: Sequence[type]) -> type:
    """A dataclass with the fields of all of them."""
    first, *others = dict.fromkeys(options)
    return make_dataclass(first.__name__, [], bases=(first, *others), frozen=True) if others else first


def load(run: Path, options: dict[str, Any]) -> LoadedRun:
    """The run with its weights, on as many threads as typed, or as it was trained with if there are as many cores."""
    import torch

    from regard.interop.quantize import is_native_model, is_quantized, kernel_sentence
    from regard.tasks.loading import load_run
    from regard.training.runtime import malloc, threads

    load_options = LoadOptions(**options)
    loaded = load_run(run, load_options.weights, load_options.device, load_options.quantization)
    for sentence in loaded.notes:
        note(sentence)
    if is_quantized(loaded.predictor.model) and not is_native_model(loaded.predictor.model):
        note(kernel_sentence(loaded.predictor.model))
    if loaded.predictor.device.type == "cpu":
        malloc.retain_freed_memory()
    recorded = None if loaded.threads is None else min(loaded.threads, threads.available())
    torch.set_num_threads(load_options.threads or recorded or torch.get_num_threads())
    return loaded
