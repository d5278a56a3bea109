"""The translator of dates that `regard demo` trains, and its attention.  No torch here."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

if TYPE_CHECKING:
    from regard.data.text.pairs import Pairs
    from regard.tasks.translate.predictor import Translator
    from regard.viz.alignment import Alignment

STEPS = 800
CONFIG = Translate.of(data="dates", metric="nll", valid_lines=500)
TRAINING = TrainingConfig(
    steps=STEPS, lr=3e-3, schedule="cosine", warmup=100, validate_every=200, save_every=200, log_every=20
)


def aligned_dates(translator: "Translator", test: "Pairs", languages: Sequence[str]) -> "list[Alignment]":
    """A date in each of these languages with its translation and the attention behind it."""
    from regard.viz.alignment import Alignment

    lines = [test.source[_full(test, language)] for language in languages]
    translations = [best for best, *_ in translator.translate(lines)]
    return [
        Alignment(aligned.source, aligned.target, aligned.weights, text=(line, translation.text))
        for line, translation, aligned in zip(lines, translations, translator.align(lines, translations), strict=True)
    ]


def _full(test: "Pairs", language: str) -> int:
    """The first test pair of a language that is written out in full, with the day of the week."""
    from regard.data.embedded.dates import line

    return next(
        n
        for n, (source, target) in enumerate(zip(test.source, test.target, strict=True))
        if source == line(date.fromisoformat(target), language, "full")
    )
