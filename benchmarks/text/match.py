"""Pairs of texts: `python -m benchmarks.text.match --sick FOLDER`, `--snli FILE` or `--quantifiers` [--encoder FOLDER].

SICK: entailment of sentences about pictures (Marelli et al. 2014), scored on its 500 trial pairs. SNLI: the pairs of a
file (Bowman et al. 2015), of which every seed holds out a tenth; no first text is on both sides. Both are scored on the
pairs that select the best weights. Quantifiers: the embedded twins, scored on their test pairs. With --encoder, the
frozen states of a released encoder are the vectors of tokens; without it, vectors are trained from scratch.
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
from regard.tasks.loading import load_run
from regard.tasks.match.options import Match
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
TITLES = {"sick": "SICK", "snli": "SNLI", "quantifiers": "Quantifiers"}
MINUTES = {"sick": 5.0, "snli": 10.0, "quantifiers": 2.0}
SEEDS = {"sick": 3, "snli": 1, "quantifiers": 3}
# the least accuracy, and the least distance from the bag of words
LEAST = {"sick": (82.0, 1.0), "snli": (0.0, 5.0), "quantifiers": (95.0, 20.0)}
# a co-encoder of states that are not trained, whose layers above them are wide for few pairs
FROZEN: dict[str, Any] = {"freeze": "all", "dropout": 0.3, "width": 150}
SELECTED = "The best weights are chosen on the pairs that are scored, so the accuracy is somewhat too high.\n"
SAID = {
    "sick": "Entailment of sentences about pictures, on the 500 trial pairs. " + SELECTED,
    "snli": "A tenth of the pairs of one file, held out by first texts; the rest is trained on. " + SELECTED,
    "quantifiers": "Twins: no model that ignores the order of words is right about more than half of them.\n",
}


@dataclass(frozen=True)
class Scored:
    """One training: its evaluation, and the CPU seconds it took."""

    seed: int
    evaluation: Evaluation
    step: int
    cpu: float | None

    @property
    def accuracies(self) -> tuple[float, float]:
        """Of the model and of the bag of words."""
        baseline: float = self.evaluation.facts["baseline"]["scores"]["accuracy"]
        return self.evaluation.scores["accuracy"], baseline

    def json(self) -> dict[str, Any]:
        found = self.evaluation
        facts = {"seed": self.seed, "step": self.step, "cpu_seconds": self.cpu, "count": found.count}
        return {**facts, "scores": dict(found.scores), **found.facts}


def score(name: str, task: Match, training: TrainingConfig, run: Path, say: Say) -> Scored:
    """Trains to the end of `training`, and evaluates."""
    train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, run, task.Evaluate(), lambda done, count: None)
    spent = Spent.of(run)
    scored = Scored(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {scored.json()}")
    return scored


def rows_of(name: str, model: str, found: Sequence[Scored], training: TrainingConfig, has_bounds: bool) -> list[Row]:
    """The mean over seeds of each accuracy, and of their difference, with the spread."""
    own, bags = zip(*(each.accuracies for each in found), strict=True)
    columns = {
        f"{model}, accuracy": (own, LEAST[name][0]),
        "bag of words, accuracy": (bags, 0.0),
        f"{model} above the bag of words": ([a - b for a, b in zip(own, bags, strict=True)], LEAST[name][1]),
    }
    end = f"{training.minutes:g} minutes" if training.epochs is None else f"{training.epochs:g} epochs"
    how = f"{end}, {training.threads} thread{'s' * (training.threads != 1)}"
    how += f", {len(found)} seed{'s' * (len(found) != 1)}"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    return [
        Row(
            f"{name}, {what}",
            statistics.mean(values),
            "points" if "above" in what else f"% of {found[0].evaluation.count:,} pairs",
            Bound("least", least) if least and has_bounds else None,
            how,
            cpu,
            beside=f"{min(values):.2f} to {max(values):.2f}",
        )
        for what, (values, least) in columns.items()
    ]


def run(name: str, tasks: Sequence[Match], training: TrainingConfig, runs: Path, results: Path, say: Say) -> Path:
    is_encoded = tasks[0].model.has_encoder
    label = f"{name}-{tasks[0].model_name}" + ("-encoder" if is_encoded else "")
    found = [score(f"{label}-{task.seed}", task, training, runs / f"{label}-{task.seed}", say) for task in tasks]
    # bounds are those of frozen vectors, where a data set is too small to learn words from
    rows = rows_of(name, tasks[0].model_name, found, training, is_encoded or name == "quantifiers")
    for row in rows:
        say(" | ".join(row.cells()))
    option = {"sick": "--sick FOLDER", "snli": "--snli FILE", "quantifiers": "--quantifiers"}[name]
    option += " --encoder FOLDER" if is_encoded else ""
    end = f"--minutes {training.minutes:g}" if training.epochs is None else f"--epochs {training.epochs:g}"
    command = f"python -m benchmarks.text.match {option} --model {tasks[0].model_name} {end}"
    command += f" --lr {training.lr:g} --seeds {len(tasks)}"
    if levels := getattr(tasks[0].model, "levels", ()):
        command += f" --levels {' '.join(map(str, levels))}"
    # the files without their paths
    task = {**tasks[0].to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name}
    task["model"] = {key: value for key, value in task["model"].items() if not key.endswith("encoder")}
    settings = {"task": task, "training": asdict(training), "seeds": [each.json() for each in found]}
    title = TITLES[name] + (", frozen token vectors" if is_encoded else "")
    return Result(label, title, SAID[name], rows, commands=[command], settings=settings, about=About.now()).write(
        results
    )


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.match", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--sick", type=Path, metavar="FOLDER", help="with SICK_train.txt.gz and SICK_trial.txt.gz")
    chosen.add_argument("--snli", type=Path, metavar="FILE", help="JSON lines of SNLI")
    chosen.add_argument("--quantifiers", action="store_true", help="the embedded twins")
    parser.add_argument("--encoder", type=Path, metavar="FOLDER", help="a released encoder, for frozen token vectors")
    parser.add_argument("--model", default="esim", choices=("esim", "decomposable", "co-encoder"), help="(%(default)s)")
    parser.add_argument("--levels", type=int, nargs="+", default=[], help="layers of the encoder, 0 its embeddings")
    parser.add_argument("--minutes", type=float, help="minutes per training (5 for SICK, 10 for SNLI, 2 for twins)")
    parser.add_argument("--epochs", type=float, help="end after this many epochs instead")
    parser.add_argument("--seeds", type=int, help="number of trainings, one per seed (3, or 1 for SNLI)")
    parser.add_argument("--lr", type=float, help="the peak of the learning rate (1e-3; 1e-4 for co-encoder)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    name = "sick" if given.sick else "snli" if given.snli else "quantifiers"
    data: dict[str, Any] = {"data": "quantifiers"}
    if name == "sick":
        data = {"train": given.sick / "SICK_train.txt.gz", "valid": given.sick / "SICK_trial.txt.gz"}
    elif name == "snli":
        data = {"train": given.snli}
    if given.encoder is not None:
        data |= {"encoder": given.encoder, "levels": tuple(given.levels)}
    if given.model == "co-encoder":
        data |= FROZEN
    end = {"minutes": given.minutes or MINUTES[name]} if given.epochs is None else {"epochs": given.epochs}
    rates = {} if given.model == "co-encoder" else {"lr": 1e-3}
    rates = rates if given.lr is None else {"lr": given.lr}
    seeds = range(given.seeds or SEEDS[name])
    try:
        tasks = [Match.of(**{**data, "model": given.model, **options, "seed": seed}) for seed in seeds]
        defaults = Match.training_defaults(tasks[0].model)
        training = TrainingConfig(**{**defaults, **rates, **end, "threads": given.threads})
        written = run(name, tasks, training, given.runs, results, lambda text: print(text, flush=True))
        print("written:", written)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
