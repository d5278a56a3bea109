"""regard watch: an agent plays an episode: what it sees, does and attends to, move by move."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.cli import run_options
from regard.cli.output import check_writable, note
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.run_options import parse_with_run
from regard.common.options.fields import option, positional
from regard.tasks.registry import TASKS, describe

if TYPE_CHECKING:
    from regard.tasks.agent.predictor import AgentPredictor

_SUFFIXES = (".html", ".png", ".svg", ".pdf")


@dataclass(frozen=True)
class WatchOptions:
    """Watch an agent play: a line per move with what it sees, what it does, the reward, the value that it expects, and
    the past moves that it attends to. The episode is one that it was not trained on.

    Example: regard watch runs/agent 3 --picture episode.png
    """

    run: Path = positional()
    """The folder of a run of agent."""
    episode: int = positional(0)
    """The number of the episode."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the episode above, and the attended past moves below: .html, .png, .svg or .pdf."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.episode < 0:
            raise ValueError(f"an episode is a whole number, 0 or more, got {self.episode}; try 0")


def run(args: Sequence[str]) -> int:
    tasks = {"agent": TASKS["agent"]}
    options, config = parse_with_run(WatchOptions, "regard watch", args, "Predict", tasks)
    if config.name not in tasks:
        raise ValueError(
            f"{describe(options.run, config)}, and regard watch is for runs of agent; use "
            f"{config.next_command(str(options.run))}"
        )
    check_writable("--picture", options.picture, _SUFFIXES)
    not_an_input("--picture", options.picture, options.run, {})
    predictor = cast("AgentPredictor", run_options.load(options.run, options.load).predictor)
    view, outcome = predictor.watch(options.episode, config.Predict(**options.task))
    print(view.title)
    for line in view.lines():
        print(line)
    print(outcome)
    if options.picture is not None:
        note(f"the episode is drawn in {view.save(options.picture)}")
    return 0
