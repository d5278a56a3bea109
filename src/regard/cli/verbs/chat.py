"""regard chat: a conversation with a trained model, line by line."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.cli import run_options
from regard.cli.output import print_utf8
from regard.cli.parsing.output_paths import check_output
from regard.cli.run_options import parse_with_run
from regard.common.options.fields import flag, option, positional
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS, describe, read_config

if TYPE_CHECKING:
    from regard.inference.chat import ChatPredictor, ChatSpeaker

_TASKS = {name: config for name, config in TASKS.items() if config.chats is not None}
_SUFFIXES = (".jsonl", ".json", ".txt")


@dataclass(frozen=True)
class ChatOptions:
    """Talk with a trained model: one line per turn, and below its reply the words that it attended to, or the state.

    A run of respond or language-model replies to every line; a run of track shows the state of the dialogue after every
    line; a line that begins with system: is what the system says. --track adds the state to a model that replies.
    /undo, /new, /help and /quit are commands; Ctrl-D ends. From a pipe every line is a turn.
    `regard chat RUN --help` lists only the options of the task of that run.

    Example: regard chat runs/respond --track runs/track --save talk.jsonl
    """

    run: Path = positional()
    """The folder of a run, or of a released model in transformers' layout."""
    track: Path | None = option(None, metavar="RUN")
    """A run of track, which shows the state of the conversation beside each turn."""
    save: Path | None = option(None, metavar="FILE")
    """Write the conversation to this file, one JSON object per turn of the user: .jsonl, .json or .txt."""
    json: bool = flag()
    """Print a JSON object per turn, with all that is known."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options, config = parse_with_run(ChatOptions, "chat", args, _TASKS)
    if config.chats is None:
        raise ValueError(
            f"{describe(options.run, config)}, and regard chat is for runs of {', '.join(_TASKS)}; "
            f"use regard predict {options.run}"
        )
    if options.track is not None:
        _check_track(options.track, options.run, config)
    task_options = config.Predict(**options.task)
    for name in ("count", "nbest"):
        if (count := getattr(task_options, name, None) or 1) > 1:
            raise ValueError(f"--{name} {count} asks for several texts, and a turn has one reply; leave it out")
    for folder in (options.run, options.track):
        if folder is not None:
            check_output("--save", options.save, folder, _SUFFIXES)
    from regard.cli.chat_session import ChatSession
    from regard.inference.chat import Chat

    predictor = _predictor(options.run, options.load)
    if config.chats == "state":
        conversation = Chat(None, predictor, task_options)
    else:
        tracker = None if options.track is None else _predictor(options.track, options.load)
        conversation = Chat(cast("ChatSpeaker", predictor), tracker, task_options)
    print_utf8()
    ChatSession(conversation, name=options.run.resolve().name, as_json=options.json, save=options.save).run()
    return 0


def _check_track(track: Path, run: Path, config: TaskConfig) -> None:
    """Raises for --track beside a run that tracks, and for a run there that does not."""
    tracked = read_config(track)
    if tracked.chats != "state":
        raise ValueError(f"{describe(track, tracked)}, and --track is for a run that tracks the state; leave it out")
    if config.chats == "state":
        raise ValueError(f"{run} tracks the state itself, and --track {track} is for a run that replies; leave it out")


def _predictor(run: Path, load: dict[str, Any]) -> "ChatPredictor":
    return cast("ChatPredictor", run_options.load(run, load).predictor)
