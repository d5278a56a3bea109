"""regard generate: `regard predict` for the runs of language-model; one text is printed as it is sampled."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from regard.cli import run_options
from regard.cli.output import note
from regard.cli.run_options import parse_with_run
from regard.cli.verbs import predict
from regard.common.options.fields import positional
from regard.tasks.registry import TASKS

if TYPE_CHECKING:
    from regard.tasks.language_model.predictor import LanguageModelPredictor

_TASK = "language-model"


@dataclass(frozen=True)
class GenerateOptions(predict.PredictOptions):
    """Continue a prompt with a trained language model: the prompt and its continuation on stdout, as it is sampled.

    With several prompts, --count, --file, --json or a pipe, every text is one line as in `regard predict`: line breaks
    are written as \\n. Quote a prompt; "" begins a new document, and "-" is stdin.

    Example: regard generate runs/shakespeare "ROMEO:" --tokens 300 --top-p 0.9
    """

    inputs: tuple[str, ...] = positional((), metavar="[PROMPT ...]")
    """Prompts to continue."""


def run(args: Sequence[str]) -> int:
    options, config = parse_with_run(GenerateOptions, "regard generate", args, "Predict", {_TASK: TASKS[_TASK]})
    is_single = len(options.inputs) == 1 and options.inputs != ("-",) and options.file is None and not options.json
    if config.name != _TASK or not is_single:
        return predict.predict(GenerateOptions, "generate", args, task=_TASK)
    of_task = config.Predict(**options.task)
    if of_task.count > 1:
        return predict.predict(GenerateOptions, "generate", args, task=_TASK)
    predict.check_inputs(options, config, of_task)
    (prompt,) = options.inputs
    predictor = cast("LanguageModelPredictor", run_options.load(options.run, options.load).predictor)
    session = predictor.session(of_task, options.picture)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    # raises for a prompt that cannot be continued before anything is printed
    pieces = predictor.stream(prompt, of_task)
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece.text)
        sys.stdout.flush()
        if piece.whole is not None:
            session.add([prompt], [predictor.output(prompt, [piece.whole])], 0)
    sys.stdout.write("\n")
    for text in session.finish():
        note(text)
    return 0
