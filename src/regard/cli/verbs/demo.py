"""regard demo: a translator of dates, trained and plotted in two minutes."""

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.output import note
from regard.cli.parsing.parser import parse
from regard.experiments.demo_dates import CONFIG, STEPS, TRAINING, aligned_dates

if TYPE_CHECKING:
    from regard.data.text.pairs import Pairs
    from regard.tasks.translate.predictor import Translator


@dataclass(frozen=True)
class DemoOptions:
    """Train a model that reads dates in many languages, and plot its attention.

    A recurrent encoder-decoder with additive attention (Bahdanau et al. 2015) learns to translate dates to ISO 8601:
    "Παρασκευή 5 Μαΐου 2017" is 2017-05-05. Then it translates dates that it has never seen.
    """

    steps: int = STEPS
    """Training steps: 800 take about two minutes on two cores."""
    out: Path = Path("demo-output")
    """The folder for the run and the pictures; a run that exists is resumed, or shown again."""


def run(args: Sequence[str]) -> int:
    options = parse(DemoOptions, "regard demo", args)
    training = replace(TRAINING, steps=options.steps)
    folder = options.out / "run"
    from regard.cli.train_runner import train
    from regard.training.run_folder import RECORD

    resume = (folder / RECORD).exists()
    if resume:
        print(f"{folder} exists: it is resumed, if {options.steps} steps are not done; remove it to start anew.")
    code = train(CONFIG, folder, training, resume, command=shlex.join(["regard", "demo", *args]))
    return code or _show(folder, options.out)


def _show(run: Path, out: Path) -> int:
    """Prints dates of the test split in ten languages and the score, and draws the attention."""
    from regard.data.embedded.dates import TEN
    from regard.tasks.loading import load
    from regard.tasks.translate.predictor import Translator
    from regard.tasks.translate.task import read
    from regard.viz.alignment import draw, missing_fonts

    translator = load(run)
    assert isinstance(translator, Translator)
    test = read(CONFIG).test
    print(f"\nDates of days that no training pair had, in {len(TEN)} languages:\n")
    alignments = aligned_dates(translator, test, TEN)
    for alignment in alignments:
        source, translation = alignment.text
        answer = test.target[test.source.index(source)]
        right = "" if translation == answer else f"   wrong: it is {answer}"
        print(f"  {translation}   {source}{right}")
    _score(translator, test)
    print("\nThe attention behind each character:")
    print(f"  {draw(alignments, out / 'alignment.png')}")
    print(f"  {draw(alignments, out / 'alignment.html')}   (point at a letter; any browser, no network)")
    if text := missing_fonts(alignments, out / "alignment.png"):
        note(text)
    print(f'\nYour turn: {command()} translate {run} "en: May 5, 2017"')
    return 0


def command() -> str:
    """The name of this command here: "regard" if a shell finds it, otherwise its path."""
    return "regard" if shutil.which("regard") else shlex.quote(os.path.relpath(sys.argv[0]))


def _score(translator: "Translator", test: "Pairs") -> None:
    languages = [source.partition(":")[0] for source in test.source]
    translations = [best.text for best, *_ in translator.translate(test.source)]
    right = [translation == target for translation, target in zip(translations, test.target, strict=True)]
    totals = Counter(languages)
    wrong = Counter(language for language, good in zip(languages, right, strict=True) if not good)
    share = f"{100 * sum(right) / len(right):.2f} %"
    print(f"\nExactly right: {share} of {len(right):,} unseen dates in {len(totals)} languages.")
    if wrong:
        worst = sorted(wrong, key=lambda language: (-wrong[language] / totals[language], language))[:5]
        shares = ", ".join(f"{name} {100 * (1 - wrong[name] / totals[name]):.1f} %" for name in worst)
        print(f"The hardest languages: {shares}.")
    sys.stdout.flush()
