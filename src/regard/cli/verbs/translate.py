"""regard translate: `regard predict` for the runs of translate."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.cli.verbs import predict
from regard.common.options.fields import option, positional


@dataclass(frozen=True)
class TranslateOptions(predict.PredictOptions):
    """Translate text with a trained model: one line on stdout per line of text, and nothing else.

    Text comes from the words behind RUN (quote a sentence; "-" is stdin), from --file, from a pipe, or is asked for.

    Example: regard translate runs/en-de "A dog runs in the snow." --alignment attention.html
    """

    inputs: tuple[str, ...] = positional((), metavar="[TEXT ...]")
    """Lines to translate."""
    picture: Path | None = option(None, metavar="FILE")
    """The same as --alignment."""


def run(args: Sequence[str]) -> int:
    return predict.predict(TranslateOptions, "translate", args, task="translate")
