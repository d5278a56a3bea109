"""HotFlip beside exhaustive search: `python -m benchmarks.text.attacks [--runs FOLDER] [--seeds N]`.

Classifiers of the embedded verdicts, texts of sixteen words, are trained first. One word of each held-out text is
replaced: by the best 64 replacements of the gradient, by as many drawn at random, or by all.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row, Table
from regard.attacks import TEXT_ATTACKS, HotFlip
from regard.attacks.text.base import TextAttackResult
from regard.data.embedded import TEXTS
from regard.inference.edited_text import EditedText
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.loading import load
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
K = 64
TASKS: dict[str, dict[str, Any]] = {
    "self-attentive": {"model": "self-attentive"},
    "hierarchical": {"model": "hierarchical"},
}
DATA, STEPS, COUNT, SEEDS = "verdicts", 300, 100, 3
SAID = f"""\
Classifiers of the embedded verdicts, texts of sixteen words of which two or three decide the topic and one speaks for
another, attacked on held-out texts by one replaced word. Exhaustive search, `HotFlip(flips=1, k=None)`, evaluates every
word of the vocabulary at every place; `HotFlip(flips=1, k={K})` the {K} best by one gradient; the baseline {K} words at
places at random. A success is a text that was right and becomes wrong. Times are CPU times of one thread, of the whole
attack, which evaluates all candidates of a step.
"""


@dataclass(frozen=True)
class Trial:
    """One trained network: the successes and CPU seconds of each way to choose replacements, of so many right texts."""

    right: int
    exhaustive: int
    best: int
    random: int
    exhaustive_seconds: float
    best_seconds: float
    exhaustive_queries: float
    best_queries: float

    @property
    def share(self) -> float:
        """The successes of the best by gradient, in percent of those of exhaustive search."""
        return 100 * self.best / max(self.exhaustive, 1)

    @property
    def time(self) -> float:
        """Its CPU time, in percent."""
        return 100 * self.best_seconds / self.exhaustive_seconds


def successes(result: TextAttackResult) -> int:
    return int((result.broken & ~result.was_broken).sum())


def at_random(predictor: ClassifyTextPredictor, texts: Sequence[str], labels: Sequence[str], seed: int) -> int:
    """The successes of K replacements drawn at random per text."""
    rng = np.random.default_rng(seed)
    words = [text for text in predictor.token_texts().texts if text is not None]
    targets, count = predictor.attack_targets(texts, labels), 0
    with torch.no_grad():
        for text, target in zip(texts, targets, strict=True):
            places = predictor.token_places(text)
            chosen = zip(rng.integers(len(places), size=K), rng.integers(len(words), size=K), strict=True)
            drawn = [EditedText(text).replace(places[i].start, places[i].end, words[v]) for i, v in chosen]
            is_wrong = predictor.attack_scores([EditedText(text), *drawn], [target] * (K + 1)).is_wrong
            count += bool(is_wrong[1:].any()) and not bool(is_wrong[0])
    return count


def trial(predictor: ClassifyTextPredictor, texts: Sequence[str], labels: Sequence[str], seed: int) -> Trial:
    found, seconds = {}, {}
    regard.attack(predictor, texts[:2], labels[:2], HotFlip(flips=1, k=K))  # the first calls of a process are slow
    for name, attack in (("best", HotFlip(flips=1, k=K)), ("all", HotFlip(flips=1, k=None))):
        begun = time.process_time()
        found[name] = regard.attack(predictor, texts, labels, attack)
        seconds[name] = time.process_time() - begun
    return Trial(
        int((~found["all"].was_broken).sum()),
        successes(found["all"]),
        successes(found["best"]),
        at_random(predictor, texts, labels, seed),
        seconds["all"],
        seconds["best"],
        float(found["all"].queries.double().mean()),
        float(found["best"].queries.double().mean()),
    )


def held_out(task: ClassifyText, count: int) -> tuple[list[str], list[str]]:
    """Test texts, evenly spaced, and their classes."""
    test = TEXTS[DATA].splits(task.seed).test
    rows = [n * len(test) // count for n in range(count)]
    return [test.texts[n] for n in rows], [test.classes[test.labels[n]] for n in rows]


def rows_of(name: str, trials: Sequence[Trial], cpu: float) -> list[Row]:
    shares, times = [each.share for each in trials], [each.time for each in trials]
    seeds = f"mean of {len(trials)} seeds"
    spread = [f"{min(values):.1f} to {max(values):.1f}" for values in (shares, times)]
    queries = [statistics.mean(getattr(t, f"{way}_queries") for t in trials) for way in ("best", "exhaustive")]
    return [
        Row(
            f"{name}: successes of the best {K} flips, of those of exhaustive search", statistics.mean(shares), "%",
            Bound("least", 90), f"{seeds}, {spread[0]}; {sum(t.right for t in trials):,} texts that were right", cpu, 1,
        ),
        Row(
            f"{name}: their time, of that of exhaustive search", statistics.mean(times), "% of its CPU time",
            Bound("most", 10), f"{seeds}, {spread[1]}; {queries[0]:,.0f} and {queries[1]:,.0f} texts read per text",
            digits=1,
        ),
        Row(
            f"{name}: successes of {K} flips at random, of those of exhaustive search",
            statistics.mean(100 * t.random / max(t.exhaustive, 1) for t in trials), "%", how=seeds, digits=1,
        ),
    ]  # fmt: skip


def attacks_table(predictors: dict[str, ClassifyTextPredictor], texts: Sequence[str], labels: Sequence[str]) -> Table:
    """The accuracy of the networks of the first seed under each attack."""
    lines = []
    for name, predictor in predictors.items():
        results = {each: regard.attack(predictor, texts, labels, attack()) for each, attack in TEXT_ATTACKS.items()}
        clean = next(iter(results.values())).clean_accuracy
        lines.append([name, f"{clean:.1f}", *(f"{result.accuracy:.1f}" for result in results.values())])
    said = f"In percent of {len(texts)} test texts, the first seed, each attack with its defaults."
    return Table("Accuracy by attack", ["model", "clean", *TEXT_ATTACKS], lines, said)


def main(
    arguments: Sequence[str] | None = None, results: Path = RESULTS, *, steps: int = STEPS, count: int = COUNT
) -> int:
    """`steps` and `count` are for tests: shorter trainings, fewer texts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.attacks", description=__doc__)
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="trainings of each network (%(default)s)")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)

    def say(text: str) -> None:
        print(text, flush=True)

    training = TrainingConfig(
        **{**ClassifyText.training, "steps": steps, "threads": 1, "validate_every": steps, "log_every": steps}
    )
    rows: list[Row] = []
    first: dict[str, ClassifyTextPredictor] = {}
    trials: dict[str, list[Trial]] = {}
    try:
        for name, options in TASKS.items():
            cpu = 0.0
            for seed in range(given.seeds):
                predictor, seconds = trained(name, options, seed, training, given.runs, say)
                first.setdefault(name, predictor)
                cpu += seconds
                texts, labels = held_out(ClassifyText.of(data=DATA), count)
                trials.setdefault(name, []).append(trial(predictor, texts, labels, seed))
                say(f"{name}, seed {seed}: {trials[name][-1]}")
            rows += rows_of(name, trials[name], cpu)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    settings = {
        "training": asdict(training),
        "tasks": TASKS,
        "trials": {name: [asdict(each) for each in found] for name, found in trials.items()},
    }
    table = attacks_table(first, *held_out(ClassifyText.of(data=DATA), count))
    command = f"python -m benchmarks.text.attacks --runs runs --seeds {given.seeds}"
    result = Result("attacks", "HotFlip", SAID, rows, [table], commands=[command], settings=settings, about=About.now())
    say(f"written: {result.write(results)}")
    return 0


def trained(
    name: str, options: dict[str, Any], seed: int, training: TrainingConfig, runs: Path, say: Say
) -> tuple[ClassifyTextPredictor, float]:
    """The classifier, and the CPU seconds of its training."""
    task = ClassifyText.of(data=DATA, seed=seed, **options)
    run = runs / "attacks" / f"{name}-{seed}"
    train(f"{name}, seed {seed}", task, training, run, say)
    predictor = load(run, device="cpu")
    assert isinstance(predictor, ClassifyTextPredictor)
    spent = Spent.of(run)
    return predictor, 0.0 if spent is None else spent.seconds


if __name__ == "__main__":
    sys.exit(main())
