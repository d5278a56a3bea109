"""The options of verbs that load a run: those of the verb, of the run's task, and of the loading.  No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from regard.cli.parsing.parser import asks_for_help, parse, positionals
from regard.common.option_checks import check_positive
from regard.common.option_fields import left_open
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.registry import TASKS, read_config

if TYPE_CHECKING:
    from regard.tasks.loading import LoadedRun

T = TypeVar("T")


@dataclass(frozen=True)
class LoadOptions:
    """The weights of a run, and where to compute."""

    weights: Literal["best", "last", "average"] | None = left_open("best")
    """For a run: the weights of the best validation, of the last step, or their average if one was made."""
    threads: int | None = left_open("as many as the training found best")
    """Threads of the processor."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        check_positive(self, "threads")


def parse_with_run(
    options: type[T], prog: str, args: Sequence[str], nested: str, tasks: Mapping[str, type[TaskConfig]] = TASKS
) -> tuple[T, TaskConfig]:
    """The options of a verb, and the options of the run that its first word names.

    `nested` names the dataclass of the run's task with further options: "Evaluate", "Predict" or "Serve". They are in
    the field `task` of the result, those of LoadOptions in the field `load`, both as dicts of what was typed. Without a
    run, or a folder of it, the help lists the options of all `tasks`.
    """
    of_tasks = {name: getattr(config, nested) for name, config in tasks.items()}
    words = positionals([options, LoadOptions, *of_tasks.values()], args)
    if words and not (asks_for_help(args) and not Path(words[0]).is_dir()):
        config = read_config(Path(words[0]))
        sections = {"task": getattr(config, nested), "load": LoadOptions}
        return parse(options, prog, args, sections=sections), config
    # prints the help, or raises for the run that is missing
    parse(options, prog, args, sections={"task": NoOptions, **of_tasks, "load": LoadOptions})
    raise AssertionError


def load(run: Path, options: dict[str, Any]) -> LoadedRun:
    """The run with its weights, on as many threads as typed, or as it was trained with."""
    import torch

    from regard.tasks.loading import load_run
    from regard.training.runtime import malloc

    load_options = LoadOptions(**options)
    loaded = load_run(run, load_options.weights, load_options.device)
    if loaded.predictor.device.type == "cpu":
        malloc.retain_freed_memory()
    torch.set_num_threads(load_options.threads or loaded.threads or torch.get_num_threads())
    return loaded
