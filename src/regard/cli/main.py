"""main(): the command line. Torch is imported inside verbs, so that `regard --help` is instant."""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard import __version__
from regard.cli.terminal_output import escape_terminals
from regard.common.suggestions import known

VERBS = {
    "demo": "train a model that reads dates (about two minutes), and plot its attention",
    "train": "train a model on your own files or on an embedded data set; resume with --resume",
    "inspect": "what would be read from a file of texts, and the command that trains on it",
    "predict": "predict with a trained model: translations, classes, captions, samples",
    "translate": "predict with a trained translator: text in, one line of text per line out",
    "generate": "predict with a trained language model: a prompt in, its continuation out as it is sampled",
    "chat": "talk with a trained model: replies, attended words, the state of the dialogue",
    "watch": "watch a trained agent play an episode, and the past steps that it attends to",
    "embed": "predict with a trained encoder: vectors of texts, or the nearest lines of a file",
    "record": "record the attention of a run, or of a model of transformers, on a text or an image",
    "view": "show a recording, or the attention of a run: terminal, figure, page",
    "serve": "serve a trained model over HTTP: a web page and a JSON API",
    "evaluate": "score a trained model",
    "check": "verify the files and answers of a trained model before it is served",
    "quantize": "write a trained model with 8-bit weights, and the quality that they cost",
    "export": "write a trained model in the format of transformers, CTranslate2, ONNX or torch.export",
    "attack": "the accuracy of a trained model of images or texts under an adversarial attack",
    "attribute": "how much each word of a text adds to the class that a trained model gives it",
    "faithfulness": "how far attributions, and the attention of a trained model, can be trusted",
    "compare": "train several attentions on the same data with the same budget: a table and a plot",
    "compare-runs": "the inputs that two trained models answer differently, with a test of significance",
    "list": "names of mechanisms, gates, models, data sets and environments",
    "runs": "the trained models in a folder, with their scores, dates and curves",
    "completion": "the script by which bash or zsh completes commands",
    "explain": "the formula of a mechanism, and the backend that computes it",
}

# verbs that run with the packages that regard itself requires; all others need an extra
_BASE_VERBS = ("list", "explain", "completion")
# verbs that are `regard predict` for the runs of one task
_ALIASES = ("translate", "generate", "watch", "embed")
# verbs in the package of those that look at files and runs
_REPORTS = ("check", "compare-runs", "inspect", "runs")
# verbs that load a run and have no options of its task
_EXPLAINING = ("attribute", "faithfulness", "check")
# the dataclass of a task with its further options, by verb
TASK_OPTIONS = {
    "evaluate": "Evaluate",
    "compare-runs": "Evaluate",
    "attack": "Attack",
    "serve": "Serve",
    **dict.fromkeys(("predict", "chat", *_ALIASES), "Predict"),
}

# raised for bad input; anything else is a bug and keeps its traceback
_BAD_INPUT = (ValueError, TypeError, OSError, ImportError)


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command; 0 is success, 2 bad input, 3 a training that diverged, 130 an interrupt."""
    words, modules, debug = _without_common_options(list(sys.argv[1:] if args is None else args))
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # a terminal without a character shows its number instead of failing
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    escape_terminals()
    try:
        for module in modules:
            _import_trusted(module)
        return _run(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2 if stop.code else 0
    except KeyboardInterrupt:
        print_error("interrupted")
        return 130
    except BrokenPipeError:
        # the reader of the output is gone; without this, Python reports it again at exit
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except _BAD_INPUT as error:
        if debug or not _is_bad_input(error):
            raise
        text = sentence(error)
        if words and words[0] in VERBS:
            from regard.cli.parsing.option_names import with_cli_option_names

            text = with_cli_option_names(text, typed_options(words[0], words[1:]))
        print_error(text)
        return 2


def _open_closed_streams() -> None:
    """Opens the null device in place of the standard streams that the caller closed (<&-, >&-), which are None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  it lasts as long as the process


def _versions() -> str:
    """The lines that a report of an error needs."""
    import torch

    from regard.kernels import native_library

    library = native_library.library()
    native = library and f"native kernels: {native_library.instruction_set()}, {library._name}"
    python = ".".join(map(str, sys.version_info[:3]))
    versions = f"regard {__version__}, Python {python}, torch {torch.__version__}"
    return f"{versions}\n{native or native_library.unavailable_reason()}"


def _run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        print(_versions())
        return 0
    about = (
        "Attention for PyTorch: train models with any mechanism, and see their attention.\n\n"
        "`regard VERB --help` lists the options of a verb. With any verb, --debug shows the traceback of an error,\n"
        "and --trust-module MODULE imports a module that a run of yours needs, which opening a run never does.\n"
        "regard --version prints the versions of regard and torch, and the instruction set of the native kernels."
    )
    verb = choose("regard", "VERB", VERBS, words, about)
    if verb is None:
        return 0
    if verb not in _BASE_VERBS:
        try:
            import msgspec  # noqa: F401
        except ImportError:
            print_error(f"regard {verb} needs msgspec; install it with: pip install 'regard[train]'")
            return 2
    alias = {"verb": verb} if verb in _ALIASES else {}
    return int(_module(verb).run(words[1:], **alias))


def _without_common_options(words: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """The words without --debug and each --trust-module MODULE before "--"; those modules; whether --debug is there."""
    if list(words[:2]) == ["completion", "words"]:  # these are being typed, and must import nothing
        return list(words), [], False
    end = words.index("--") if "--" in words else len(words)
    kept, modules = [], []
    before = iter(words[:end])
    for word in before:
        option, equals, value = word.partition("=")
        if option == "--trust-module":
            modules.append(value if equals else next(before, ""))
        elif word != "--debug":
            kept.append(word)
    return [*kept, *words[end:]], modules, "--debug" in words[:end]


def _import_trusted(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # the module itself may raise anything
        raise ValueError(
            f"--trust-module {module!r} cannot be imported: {error}; install it, or name the module that a run needs"
        ) from error


def _module(verb: str) -> Any:
    folder = "reports." if verb in _REPORTS else ""
    name = "aliases" if verb in _ALIASES else verb.replace("-", "_")
    return importlib.import_module(f"regard.cli.verbs.{folder}{name}")


def options_class(verb: str) -> type:
    """The dataclass of the options of a verb: EvaluateOptions of evaluate."""
    options: type = getattr(_module(verb), f"{verb.title().replace('-', '')}Options")
    return options


def typed_options(verb: str, args: Sequence[str]) -> list[type]:
    """The dataclasses that have the options of a verb, and those of the task, or of the run's task, that is typed."""
    if verb in _BASE_VERBS:
        return [options_class(verb)]
    from regard.cli.run_options import LoadOptions
    from regard.training.config import TrainingConfig

    if verb in ("train", "compare"):
        return [options_class(verb), TrainingConfig, *_typed_tasks(args)]
    nested = TASK_OPTIONS.get(verb)
    task_options = [] if nested is None else [getattr(config, nested) for config in _typed_tasks(args)]
    return [options_class(verb), *([LoadOptions] if task_options or verb in _EXPLAINING else []), *task_options]


def _typed_tasks(args: Sequence[str]) -> list[type]:
    """The tasks that are typed, by name or by the folder of a run; all tasks if there is none."""
    from regard.tasks.registry import TASKS, read_config
    from regard.training.run_folder import RECORD

    typed: list[type] = [TASKS[word] for word in args[:1] if word in TASKS]
    for folder in [Path(word) for word in args if not typed and os.path.exists(os.path.join(word, RECORD))]:
        with contextlib.suppress(ValueError, OSError):  # a damaged run is the error that is being printed
            typed.append(type(read_config(folder)))
    return typed or list(TASKS.values())


def choose(prog: str, kind: str, choices: Mapping[str, str], words: Sequence[str], about: str) -> str | None:
    """The first word if it is one of the choices; None if it asks for help, which is printed.

    Without a word it prints the help on stderr and exits with code 2.
    """
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, choices)) + 3
        lines = "\n".join(f"  {name:{width}}{summary}" for name, summary in choices.items())
        print(f"usage: {prog} {kind} ...\n\n{lines}\n\n{about}", file=sys.stdout if words else sys.stderr)
        if words:
            return None
        raise SystemExit(2)
    known(f"{kind.lower()} of {prog}:", words[0], choices)
    return words[0]


def is_main_process() -> bool:
    """Whether this is the first of the processes that torchrun started; only the first one prints."""
    return os.environ.get("RANK", "0") == "0"


def print_error(text: str) -> None:
    if is_main_process():
        print(f"regard: {text}", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """The message of an error; for an error of the operating system, the file and the reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)


def _is_bad_input(error: BaseException) -> bool:
    """Whether this package or the operating system raised it; an error of another library is a bug of this package."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, OSError) or Path(frame.filename).is_relative_to(Path(__file__).parents[1])
