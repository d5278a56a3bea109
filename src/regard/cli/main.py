"""The command line: one file a verb. Torch and tyro are imported inside verbs, so that `regard --help` is instant."""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard import __version__
from regard.common.suggestions import known

VERBS = {
    "demo": "learn to read dates in two minutes, and see what the model looks at",
    "train": "train a model on files of yours or on embedded data; go on with one by --resume",
    "translate": "translate text with a trained model, and draw what it looked at",
    "predict": "say what pictures show, caption them, or draw new ones, with a trained model",
    "record": "record what a model of yours, or one of transformers, looks at while it reads a text",
    "view": "see a recording, or what a training looks at: terminal, figure, page",
    "serve": "put a trained model behind HTTP: a page to type into, and a JSON API",
    "evaluate": "score a trained model",
    "compare": "train several attentions on the same data with the same budget: a table and a plot",
    "list": "names of mechanisms, models and data",
    "explain": "a mechanism's formula, and which backend computes it",
}

# what bad input raises; anything else is a bug and keeps its traceback
_BAD_INPUT = (ValueError, TypeError, OSError, ImportError)


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command; 0 is success, 2 bad input, 3 a training that diverged, 130 an interrupt."""
    typed = list(sys.argv[1:] if args is None else args)
    until = typed.index("--") if "--" in typed else len(typed)
    debug = "--debug" in typed[:until]
    typed = [word for n, word in enumerate(typed) if n > until or word != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        # a screen without a letter shows its number: nothing stops for that
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(typed)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2 if stop.code else 0
    except KeyboardInterrupt:
        say_error("interrupted")
        return 130
    except BrokenPipeError:
        # who read the output has gone; Python would complain once more at its end
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except _BAD_INPUT as error:
        if debug or not _ours(error):
            raise
        told = sentence(error)
        if typed[0] in VERBS:
            from regard.cli.parsing.precheck import spelled

            told = spelled(told, _options(typed[0]))
        say_error(told)
        return 2


def _run(typed: list[str]) -> int:
    if typed[:1] == ["--version"]:
        print(f"regard {__version__}")
        return 0
    about = (
        "Attention for PyTorch: train a translator with any mechanism, see what it looks at.\n\n"
        "`regard VERB --help` lists the options of a verb. Everywhere: --debug shows where an error comes from.\n"
        "regard --version tells the version."
    )
    verb = choose("regard", "VERB", VERBS, typed, about)
    if verb is None:
        return 0
    try:
        import tyro  # noqa: F401
    except ImportError:
        say_error("the command line needs tyro; install it with: pip install 'regard[train]'")
        return 2
    return int(_module(verb).verb(typed[1:]))


def _module(verb: str) -> Any:
    return importlib.import_module(f"regard.cli.verbs.{verb}")


def _options(verb: str) -> list[type]:
    """The dataclasses that have the options of a verb."""
    if verb not in ("train", "compare"):
        return [_module(verb).Options]
    from regard.tasks.registry import TASKS
    from regard.training.config import TrainingConfig

    return [TrainingConfig, *TASKS.values()]


def choose(prog: str, kind: str, lines: Mapping[str, str], typed: Sequence[str], about: str) -> str | None:
    """The first word if it is known; None if help was asked for, and printed; without a word, help and an error."""
    if not typed or typed[0] in ("-h", "--help"):
        wide = max(map(len, lines)) + 3
        names = "\n".join(f"  {name:{wide}}{line}" for name, line in lines.items())
        print(f"usage: {prog} {kind} ...\n\n{names}\n\n{about}", file=sys.stdout if typed else sys.stderr)
        if typed:
            return None
        raise SystemExit(2)
    known(f"{kind.lower()} of {prog}:", typed[0], lines)
    return typed[0]


def first() -> bool:
    """Is this the process that speaks? torchrun starts several."""
    return os.environ.get("RANK", "0") == "0"


def say_error(text: str) -> None:
    if first():
        print(f"regard: {text}", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """An error in words; what the system raised is told with the file it is about."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)


def _ours(error: BaseException) -> bool:
    """Was it raised in words of this package, or by the system? A library's own complaint is a bug of ours."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, OSError) or Path(frame.filename).is_relative_to(Path(__file__).parents[1])
