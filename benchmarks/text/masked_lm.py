"""Masked language models: `python -m benchmarks.text.masked_lm --text FILE [--minutes 30]`.

BERT on a book, with the options of `regard train masked-lm`; the end of the text is held out. Every accuracy is that of
the same masked tokens.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row
from regard.inference.evaluation import Evaluation
from regard.tasks.loading import load_run
from regard.tasks.masked_lm.options import MaskedLM
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"

SAID = """\
Whole words are masked, 15 % of the tokens, in the last tenth of the text. The best weights are chosen by the first
20,000 tokens of the same tenth. Unigram: the most frequent token; bigram: by the token before the mask; two-sided: by
both neighbours; all are counted in the training text.
"""


def rows_of(evaluation: Evaluation, training: TrainingConfig, cpu: float | None) -> list[Row]:
    """One row per accuracy; that of the model must exceed the unigram and the bigram."""
    scores = evaluation.scores
    how = f"{training.minutes:g} minutes, {training.threads} thread{'s' * (training.threads != 1)}"
    least = Bound("least", max(scores["unigram"], scores["bigram"]))
    names = {"accuracy": "BERT", **{name: name for name in ("unigram", "bigram", "two-sided bigram")}}
    return [
        Row(
            f"masked tokens, {label}",
            scores[name],
            f"% of {evaluation.count:,} tokens",
            least if name == "accuracy" else None,
            how if name == "accuracy" else "",
            cpu if name == "accuracy" else None,
            beside="{:.2f} to {:.2f}".format(*evaluation.intervals[name]),
        )
        for name, label in names.items()
    ]


def run(task: MaskedLM, training: TrainingConfig, folder: Path, results: Path, say: Say) -> Path:
    train("masked-lm", task, training, folder, say)
    loaded = load_run(folder, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, folder, task.Evaluate(), lambda done, count: None)
    spent = Spent.of(folder)
    rows = rows_of(evaluation, training, None if spent is None else spent.seconds)
    for row in rows:
        say(" | ".join(row.cells()))
    command = f"python -m benchmarks.text.masked_lm --text FILE --minutes {training.minutes:g}"
    # the files without their paths
    settings = {
        "task": {**task.to_json(), "train": [path.name for path in task.train]},
        "training": asdict(training),
        "scores": dict(evaluation.scores),
        "step": loaded.step,
    }
    result = Result(
        "masked-lm", "Masked language model", SAID, rows, commands=[command], settings=settings, about=About.now()
    )
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.masked_lm", description=__doc__)
    parser.add_argument("--text", type=Path, metavar="FILE", required=True, help="a book as text, plain or .gz")
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes of training (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the processor (%(default)s)")
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the run (%(default)s)"
    )
    given = parser.parse_args(arguments)
    chosen = {**MaskedLM.training, "minutes": given.minutes, "threads": given.threads}
    try:
        task = MaskedLM.of(**{"train": (given.text,), **options})
        folder = given.runs / "masked-lm"
        print("written:", run(task, TrainingConfig(**chosen), folder, results, lambda text: print(text, flush=True)))
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
