"""regard demo: dates of the world, read by a model that attends."""

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing.options import parse
from regard.cli.recording_output import note
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

if TYPE_CHECKING:
    from regard.data.text.pairs import Pairs
    from regard.tasks.translate.predictor import Translator
    from regard.viz.alignment.alignment import Alignment

STEPS = 800
# the benchmark trains the same
TASK = Translate(data="dates", metric="nll", valid_lines=500)
TRAINING = TrainingConfig(
    steps=STEPS, lr=3e-3, schedule="cosine", warmup=100, validate_every=200, save_every=200, log_every=20
)


@dataclass(frozen=True)
class Options:
    """Learn to read dates as people of many languages write them, and see what the model looks at.

    A recurrent encoder and decoder with additive attention (Bahdanau et al. 2015) learn to write them as ISO 8601 does:
    "Παρασκευή 5 Μαΐου 2017" is 2017-05-05. Then it reads dates that it has never seen.
    """

    steps: int = STEPS
    """How long to train: 800 steps are about two minutes of two cores."""
    out: Path = Path("demo-output")
    """The folder for the run and the pictures; a run that is there already goes on, or is shown again."""


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard demo", args)
    task, training = TASK, replace(TRAINING, steps=typed.steps)
    run = typed.out / "run"
    from regard.cli.train_runner import train
    from regard.training.run_folder import RECORD

    resume = (run / RECORD).exists()
    if resume:
        print(f"{run} is there already: it goes on, if {typed.steps} steps are not done; remove it to start anew.")
    code = train(task, run, training, resume, command=shlex.join(["regard", "demo", *args]))
    return code or _show(run, typed.out)


def _show(run: Path, out: Path) -> int:
    """Dates never seen: ten languages, the score, the pictures."""
    from regard.cli.loading import load
    from regard.data.embedded.dates import TEN
    from regard.tasks.translate.task import read
    from regard.viz.alignment.alignment import draw, missing_fonts

    loaded = load(run, "best", "auto", None)
    test = read(loaded.task).test
    print(f"\nDates of days that no training pair had, in {len(TEN)} languages:\n")
    looked = looked_at(loaded.by, test, TEN)
    for one in looked:
        source, said = one.text
        answer = test.target[test.source.index(source)]
        right = "" if said == answer else f"   wrong: it is {answer}"
        print(f"  {said}   {source}{right}")
    _score(loaded.by, test)
    print("\nWhat it looked at while it wrote:")
    print(f"  {draw(looked, out / 'alignment.png')}")
    print(f"  {draw(looked, out / 'alignment.html')}   (point at a letter; any browser, no network)")
    if told := missing_fonts(looked, out / "alignment.png"):
        note(told)
    print(f'\nYour turn: {command()} translate {run} "en: May 5, 2017"')
    return 0


def command() -> str:
    """How this command is typed here: by its name if a shell finds it, by its path otherwise."""
    return "regard" if shutil.which("regard") else shlex.quote(os.path.relpath(sys.argv[0]))


def looked_at(interpreter: "Translator", test: "Pairs", languages: Sequence[str]) -> "list[Alignment]":
    """A date in each of these languages, what is said of it, and what was looked at."""
    from regard.viz.alignment.alignment import Alignment

    lines = [test.source[_full(test, language)] for language in languages]
    said = [found[0] for found in interpreter.translate(lines)]
    return [
        Alignment(seen.source, seen.target, seen.weights, text=(line, one.text))
        for line, one, seen in zip(lines, said, interpreter.align(lines, said), strict=True)
    ]


def _full(test: "Pairs", language: str) -> int:
    """The first test pair of a language that is written out in full, with the day of the week."""
    from regard.data.embedded.dates import line

    return next(
        n
        for n, (source, target) in enumerate(zip(test.source, test.target, strict=True))
        if source == line(date.fromisoformat(target), language, "full")
    )


def _score(interpreter: "Translator", test: "Pairs") -> None:
    languages = [source.partition(":")[0] for source in test.source]
    said = [found[0].text for found in interpreter.translate(test.source)]
    right = [one == target for one, target in zip(said, test.target, strict=True)]
    every = Counter(languages)
    wrong = Counter(language for language, good in zip(languages, right, strict=True) if not good)
    share = f"{100 * sum(right) / len(right):.2f} %"
    print(f"\nExactly right: {share} of {len(right):,} unseen dates in {len(every)} languages.")
    if wrong:
        worst = sorted(wrong, key=lambda language: (-wrong[language] / every[language], language))[:5]
        told = ", ".join(f"{one} {100 * (1 - wrong[one] / every[one]):.1f} %" for one in worst)
        print(f"The hardest languages: {told}.")
    sys.stdout.flush()
