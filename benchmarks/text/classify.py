"""Text classifiers: `python -m benchmarks.text.classify --trec FOLDER [--minutes 5] [--seeds 3]`, or `--documents`.

TREC: six classes of questions (Li and Roth 2002) by the self-attentive model. Every seed holds out a different tenth of
the training questions, which selects the best weights and is scored, unless the folder also has TREC.test.all.
Documents: the embedded reports by the hierarchical model, scored on their test texts.
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
from benchmarks.vision.result import ROOT, Result, Row
from regard.inference.evaluation import Evaluation
from regard.tasks.classify_text.options import ClassifyText, EvaluateTextClasses
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"

SAID = {
    "trec": """\
Questions with one of six coarse classes. Every seed holds out a different tenth of the training questions of each
class, without duplicates. The best weights of every run are chosen on the same questions that are scored, so the
accuracy is somewhat too high. The bag of words, which chooses nothing, is trained on the same questions, with the same
tokens and pairs of tokens.
""",
    "documents": """\
Generated reports of three to eight sentences, one of which decides the class. Evidence attention is the share of the
sentence attention that is on this sentence, the mean over the test texts.
""",
}


@dataclass(frozen=True)
class Scored:
    """One training: its evaluation, and the CPU seconds it took."""

    seed: int
    evaluation: Evaluation
    step: int
    cpu: float | None

    def json(self) -> dict[str, Any]:
        found = self.evaluation
        return {
            "seed": self.seed,
            "step": self.step,
            "cpu_seconds": self.cpu,
            "count": found.count,
            "scores": dict(found.scores),
            **found.facts,
        }


def score(name: str, task: ClassifyText, training: TrainingConfig, run: Path, say: Say) -> Scored:
    """Trains to the end of `training`, and evaluates."""
    train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, run, EvaluateTextClasses(), lambda done, count: None)
    spent = Spent.of(run)
    scored = Scored(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {scored.json()}")
    return scored


def rows_of(name: str, found: Sequence[Scored], training: TrainingConfig) -> list[Row]:
    """The mean over seeds of each score, with its spread."""
    scores = {
        "accuracy": [each.evaluation.scores["accuracy"] for each in found],
        "bag of words": [each.evaluation.facts["baseline"]["scores"]["accuracy"] for each in found],
        "macro F1": [each.evaluation.scores["macro f1"] for each in found],
    }
    bounds = {"accuracy": Bound("least", max(87.0, statistics.mean(scores["bag of words"])))} if name == "trec" else {}
    if name == "documents":
        scores["evidence attention"] = [each.evaluation.scores["evidence"] for each in found]
        bounds = {"evidence attention": Bound("least", 90.0)}
    how = f"{training.minutes:g} minutes, {training.threads} thread{'s' * (training.threads != 1)}, {len(found)} seeds"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    count = found[0].evaluation.count
    return [
        Row(
            f"{name}, {score}",
            statistics.mean(values),
            f"% of {count:,} texts" if score != "macro F1" else "%",
            bounds.get(score),
            how,
            cpu,
            beside=f"{min(values):.2f} to {max(values):.2f}",
        )
        for score, values in scores.items()
    ]


def run(
    name: str, tasks: Sequence[ClassifyText], training: TrainingConfig, runs: Path, results: Path, say: Say
) -> Path:
    found = [score(f"{name}-{task.seed}", task, training, runs / f"{name}-{task.seed}", say) for task in tasks]
    rows = rows_of(name, found, training)
    for row in rows:
        say(" | ".join(row.cells()))
    option = "--trec FOLDER" if name == "trec" else "--documents"
    command = f"python -m benchmarks.text.classify {option} --minutes {training.minutes:g} --seeds {len(tasks)}"
    # the files without their paths
    task = {**tasks[0].to_json(), **dict.fromkeys(("train", "test")), "data": name}
    settings = {"task": task, "training": asdict(training), "seeds": [each.json() for each in found]}
    title = {"trec": "TREC", "documents": "Documents"}[name]
    result = Result(name, title, SAID[name], rows, commands=[command], settings=settings, about=About.now())
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.classify", description=__doc__)
    parser.add_argument("--trec", type=Path, metavar="FOLDER", help="a folder with TREC.train.all, as published")
    parser.add_argument("--documents", action="store_true", help="use the embedded documents instead")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes per training (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings, one per seed (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the processor (%(default)s)")
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = parser.parse_args(arguments)
    if (given.trec is None) == (not given.documents):
        parser.error("give --trec FOLDER or --documents")
    chosen = {**ClassifyText.training, "minutes": given.minutes, "threads": given.threads}
    try:
        if given.documents:
            name, data = "documents", {"data": "documents", "model": "hierarchical"}
        else:
            name, data = "trec", {"train": given.trec / "TREC.train.all"}
            if (given.trec / "TREC.test.all").exists():
                data["test"] = given.trec / "TREC.test.all"
        tasks = [ClassifyText.of(**{**data, **options, "seed": seed}) for seed in range(given.seeds)]
        print(
            "written:",
            run(name, tasks, TrainingConfig(**chosen), given.runs, results, lambda text: print(text, flush=True)),
        )
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
