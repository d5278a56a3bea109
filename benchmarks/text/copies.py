"""Copies from a memory: `python -m benchmarks.text.copies copy --model ntm --steps 2000 --seeds 3`.

Every training ends after a number of steps; a longer or shorter one is another command. The test sequences of every
length are new: none is in the training, validation or test part.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row, Table
from regard.tasks.loading import load_run
from regard.tasks.translate.options import EvaluateTranslations, Translate
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
MODELS: dict[str, dict[str, Any]] = {
    "ntm": {"model": "ntm"},
    "ntm-feed-forward": {"model": "ntm", "controller": "feed-forward"},
    "lstm": {"model": "seq2seq", "cell": "lstm", "decoder": "initial"},
    "additive": {"model": "seq2seq", "cell": "lstm", "decoder": "bahdanau"},
}
ABOUT = {
    "ntm": "a memory, LSTM controller",
    "ntm-feed-forward": "a memory, feed-forward controller",
    "lstm": "LSTM encoder and decoder without attention",
    "additive": "LSTM encoder and decoder with additive attention",
}
# recurrent models as in the measurements of reversed letters
TRAINING: dict[str, dict[str, Any]] = {
    "lstm": {"lr": 3e-3, "schedule": "cosine", "warmup": 200},
    "additive": {"lr": 3e-3, "schedule": "cosine", "warmup": 200},
}
LENGTHS = {"copy": (10, 20, 40), "repeat-copy": (10, 20)}
# of the symbols, by length; two of three seeds must reach both
BOUNDS = {20: 99.0, 40: 90.0}
SAID = """\
Letters are copied by greedy search, once or as often as a digit says. Symbols: letters at their place, in percent of
those of the longer of output and target. Exact: whole sequences. Every length has 1,000 new sequences; those of more
than 20 letters (repeat-copy: 10) are longer than any in training. The likelihood of the validation sequences selects
the best weights.
"""


@dataclass(frozen=True)
class ScoredCopies:
    """One training: its scores by length, and the CPU seconds it took."""

    seed: int
    scores: dict[int, dict[str, float]]
    step: int
    parameters: int
    cpu: float | None

    @property
    def reached(self) -> bool:
        return all(self.scores[length]["symbols"] >= least for length, least in BOUNDS.items())

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "scores": {str(length): each for length, each in self.scores.items()}}


def score(name: str, task: Translate, training: TrainingConfig, run: Path, say: Say) -> ScoredCopies:
    """Trains to the end of `training`, and evaluates at every length."""
    started, _ = train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    scores = {}
    for length in LENGTHS[task.dataset]:
        options = EvaluateTranslations(beam=1, length=length)
        evaluation = task.load().evaluate(loaded.predictor, run, options, lambda done, count: None)
        scores[length] = dict(evaluation.scores)
        say(f"{name}: {evaluation.split}: {scores[length]}")
    spent = Spent.of(run)
    return ScoredCopies(task.seed, scores, loaded.step, started.parameters, None if spent is None else spent.seconds)


def rows_of(data: str, model: str, found: Sequence[ScoredCopies], training: TrainingConfig) -> list[Row]:
    """The median over seeds of each length, which two of three seeds reach, with the range."""
    how = f"{training.steps:,} steps, {training.threads} thread, {len(found)} seed{'s' * (len(found) != 1)}"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    rows = []
    for length in LENGTHS[data]:
        values = [each.scores[length]["symbols"] for each in found]
        has_bound = data == "copy" and model == "ntm" and length in BOUNDS
        rows.append(
            Row(
                f"{data}, {ABOUT[model]}, {length} letters",
                statistics.median(values),
                "% of symbols",
                Bound("least", BOUNDS[length]) if has_bound else None,
                how,
                cpu,
                beside=f"median, {min(values):.2f} to {max(values):.2f}",
            )
        )
    return rows


def table_of(found: Sequence[ScoredCopies], data: str) -> Table:
    headings = ["seed", *(f"{length}: symbols, exact" for length in LENGTHS[data]), "best step", "CPU minutes"]
    rows = [
        [
            str(each.seed),
            *(f"{scores['symbols']:.2f}, {scores['exact']:.1f}" for scores in each.scores.values()),
            f"{each.step:,}",
            "" if each.cpu is None else f"{each.cpu / 60:.1f}",
        ]
        for each in found
    ]
    return Table("Seed by seed, by letters per sequence, in percent", headings, rows)


def run(data: str, model: str, training: TrainingConfig, seeds: int, runs: Path, results: Path, say: Say,
        **options: Any) -> Path:  # fmt: skip
    tasks = [Translate.of(**{"data": data, **MODELS[model], **options, "seed": seed}) for seed in range(seeds)]
    labels = [f"{data}-{model}-{task.seed}" for task in tasks]
    found = [score(label, task, training, runs / label, say) for label, task in zip(labels, tasks, strict=True)]
    rows, table = rows_of(data, model, found, training), table_of(found, data)
    for row in rows:
        say(" | ".join(row.cells()))
    if data == "copy":
        say(f"{sum(each.reached for each in found)} of {len(found)} seeds reach {BOUNDS}")
    result = Result(
        f"{data}-{model}",
        f"{data}: {ABOUT[model]}",
        SAID,
        rows,
        [table],
        commands=[f"python -m benchmarks.text.copies {data} --model {model} --steps {training.steps} --seeds {seeds}"],
        settings={"task": tasks[0].to_json(), "training": asdict(training), "seeds": [each.json() for each in found]},
        about=About.now(),
    )
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.copies", description=__doc__)
    parser.add_argument("data", choices=LENGTHS, help="the embedded data set")
    parser.add_argument("--model", default="ntm", choices=MODELS, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=2000, help="steps per training (%(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings, one per seed (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    of_model = Translate.models[MODELS[given.model]["model"]].training | TRAINING.get(given.model, {})
    try:
        training = TrainingConfig(**{**of_model, "steps": given.steps, "threads": 1, "validate_every": 250})
        sizes = (given.data, given.model, training, given.seeds, given.runs, results)
        written = run(*sizes, lambda text: print(text, flush=True), **options)
        print("written:", written)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
