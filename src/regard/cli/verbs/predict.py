"""regard predict: the outputs of a trained model, and the attention behind them."""

import json
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli import run_options
from regard.cli.input_lines import in_chunks, input_lines
from regard.cli.output import note, print_utf8
from regard.cli.parsing.output_paths import check_output
from regard.cli.run_options import parse_with_run
from regard.common.options.fields import flag, option, positional
from regard.data.spreadsheets.input_texts import read_inputs
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS, describe


@dataclass(frozen=True)
class PredictOptions:
    """Predict with a trained model: one line per input on stdout, and nothing else.

    Inputs are the words behind RUN: sentences (quote them), files of images, clips or sound, or classes, as its task
    takes them.
    Sentences may also come from --file, from a pipe ("-" is stdin), or are asked for.
    `regard predict RUN --help` lists only the options of the task of that run.

    Example: regard predict runs/mnist three.png seven.png --top 3
    """

    run: Path = positional()
    """The folder of a run, or of a released model in transformers' layout."""
    inputs: tuple[str, ...] = positional(())
    """Sentences, files of images, clips or sound, or classes."""
    file: Path | None = option(None, metavar="FILE")
    """Predict for every line of this file; .gz is unpacked, and "-" is stdin."""
    text_column: str | None = option(None, metavar="NAME")
    """The column of the texts where --file is CSV or TSV: a name, or its number from 1, of pairs two as A,B; if left
    out, that of the training, or by name."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the attention behind the output, or the images that a generator made: .png, .svg, .pdf, and for most tasks
    .html or .txt."""
    json: bool = flag()
    """Print a JSON object per input, with all that is known."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    return predict(PredictOptions, "predict", args)


def predict(
    options_type: type[Any],
    verb: str,
    args: Sequence[str],
    task: str | None = None,
    output: Callable[[Any, Any, TaskConfig, Any], bool] | None = None,
) -> int:
    """Runs `regard predict`, or a verb that does the same for the runs of one task.

    `output` receives the predictor, the options, the task and its options, and may print in its own way; then it
    returns True.
    """
    tasks = TASKS if task is None else {task: TASKS[task]}
    options, config = parse_with_run(options_type, verb, args, tasks)
    if config.name not in tasks:
        raise ValueError(
            f"{describe(options.run, config)}, and regard {verb} is for runs of {task}; use "
            f"{config.next_command(str(options.run))}"
        )
    task_options = config.Predict(**options.task)
    _check_inputs(options, config)
    predictor = run_options.load(options.run, options.load).predictor
    print_utf8()
    if output is None or not output(predictor, options, config, task_options):
        _print_predictions(predictor, options, config, task_options)
    return 0


def _print_predictions(predictor: Any, options: Any, config: TaskConfig, task_options: Any) -> None:
    """Prints a line per input, and notes about all of them at the end."""
    session = predictor.session(task_options, options.picture)
    first = 0
    for arguments in input_chunks(options, config):
        inputs = [predictor.read(argument) for argument in arguments]
        session.check(first + len(inputs))
        streams = [] if options.json else [predictor.stream_text(example, task_options) for example in inputs]
        if pieces := [each for each in streams if each is not None]:
            outputs = [_print_pieces(*each) for each in zip(arguments, pieces, strict=True)]
            session.add(inputs, outputs, first)
            first += len(inputs)
            continue
        outputs = predictor.predict(inputs, task_options, first=first)
        session.add(inputs, outputs, first)
        for argument, output in zip(arguments, outputs, strict=True):
            if options.json:
                line = json.dumps({predictor.input_key: argument, **predictor.json(output)}, ensure_ascii=False)
            else:
                line = predictor.text(output)
                line = line if config.input_kind.is_text else f"{argument}\t{line}"
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        first += len(inputs)
    is_file = options.file is not None and str(options.file) != "-"
    if first == 0 and (is_file or not sys.stdin.isatty()):
        note(f"there is no line in {options.file if is_file else 'stdin'}, so nothing was predicted")
    for text in session.finish():
        note(text)


def _print_pieces(argument: str, pieces: Generator[str, None, Any]) -> Any:
    """Prints the line of an output piece by piece, each when it is known; returns the output."""
    sys.stdout.write(f"{argument}\t")
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            sys.stdout.write("\n")
            return end.value
        sys.stdout.write(piece)
        sys.stdout.flush()


def input_chunks(options: PredictOptions, config: TaskConfig) -> Iterator[list[str]]:
    """The arguments that name inputs, in chunks that are predicted together."""
    if config.input_kind.is_text:
        if options.file is not None:
            typed = [] if options.text_column is None else options.text_column.split(",")
            if (texts := read_inputs(options.file, config.input_columns, typed)) is not None:
                return in_chunks(iter(texts))
        return input_lines(config.join_texts(options.inputs), options.file, split_words=not config.has_line_breaks)
    return iter([list(options.inputs)])


def _check_inputs(options: Any, config: TaskConfig) -> None:
    """Raises before a model is loaded for inputs that are missing or clash, and files that cannot be written."""
    if options.text_column is not None and (options.file is None or str(options.file) == "-"):
        raise ValueError(f"--text-column {options.text_column} is a column of --file; give --file with a sheet as well")
    if config.input_kind.is_text:
        if options.inputs and options.file is not None:
            text = options.inputs[0]
            raise ValueError(f"--file {options.file} and the text {text!r} exclude each other; give one of them")
        if "-" in options.inputs and len(options.inputs) > 1:
            raise ValueError("- reads all text from stdin, so it must stand alone; leave the other words out")
        if not config.reads_empty_texts and any(not text.strip() for text in options.inputs):
            raise ValueError(f"a text of regard predict {options.run} is empty; give at least one word")
    else:
        if options.file is not None:
            raise ValueError(
                f"--file {options.file} is for lines of text; name each {config.input_kind} behind the run"
            )
        if not options.inputs:
            raise ValueError(f"name an input, or several, behind the run: each is one {config.input_kind}")
    inputs: dict[str, Sequence[Path | str]] = {
        "an input": options.inputs if config.input_kind.is_file else (),
        "the file of --file": () if options.file is None else (options.file,),
    }
    check_output("--picture", options.picture, options.run, config.picture_suffixes, inputs)
