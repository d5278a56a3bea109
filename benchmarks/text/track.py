"""States of dialogues: `python -m benchmarks.text.track --woz FOLDER` or `--bookings`.

WoZ 2.0 (Wen et al. 2017; Mrkšić et al. 2017) is scored on its validation dialogues, which also select the best weights.
Bookings, the embedded dialogues, are scored on their test dialogues. Both are trained from scratch.
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
from regard.metrics.tracking import DEFINITIONS
from regard.tasks.loading import load_run
from regard.tasks.track.options import EvaluateStates, Track
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
TITLES = {"woz": "States of WoZ 2.0", "bookings": "States of bookings"}
# weights of as many last validations are averaged at the end
AVERAGE = 5
CONTEXTS = ("acts", "recurrent", "attention")
MINUTES = {"woz": 10.0, "bookings": 4.0}
# the least scores, and the least distance of the joint goal from string matching
LEAST = {"woz": {"joint goal": 85.0, "turn request": 96.0}, "bookings": {"joint goal": 95.0}}
DISTANCE = {"woz": 0.0, "bookings": 20.0}
DEFINED = " ".join(f"{name.capitalize()}: {text}." for name, text in DEFINITIONS.items()) + "\n"
SAID = {
    "woz": "The 200 validation dialogues, which also select the best weights, so the scores are somewhat too high. "
    + DEFINED,
    "bookings": "The test dialogues of the embedded data. " + DEFINED,
}


@dataclass(frozen=True)
class ScoredTracker:
    """One training: its evaluation, and the CPU seconds it took."""

    seed: int
    evaluation: Evaluation
    step: int
    cpu: float | None

    @property
    def baseline(self) -> dict[str, float]:
        found: dict[str, float] = self.evaluation.facts["baseline"]["scores"]
        return found

    def json(self) -> dict[str, Any]:
        scores = {"scores": dict(self.evaluation.scores), "baseline": self.baseline}
        return {"seed": self.seed, "step": self.step, "cpu_seconds": self.cpu, "turns": self.evaluation.count, **scores}


def score(name: str, task: Track, training: TrainingConfig, run: Path, say: Say) -> ScoredTracker:
    """Trains to the end of `training`, and evaluates."""
    train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, run, EvaluateStates(), lambda done, count: None)
    spent = Spent.of(run)
    scored = ScoredTracker(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {scored.json()}")
    return scored


def rows_of(name: str, found: Sequence[ScoredTracker], training: TrainingConfig) -> list[Row]:
    """The mean over seeds of every score and of string matching, and the distance of their joint goals."""
    columns: dict[str, tuple[list[float], float]] = {}
    for metric in DEFINITIONS:
        own = [each.evaluation.scores[metric] for each in found]
        columns[metric] = own, LEAST[name].get(metric, 0.0)
        columns[f"string matching, {metric}"] = [each.baseline[metric] for each in found], 0.0
    distances = [each.evaluation.scores["joint goal"] - each.baseline["joint goal"] for each in found]
    columns["joint goal above string matching"] = distances, DISTANCE[name]
    end = f"{training.minutes:g} minutes" if training.steps is None else f"{training.steps:,} steps"
    how = f"{end}, {training.threads} thread{'s' * (training.threads != 1)}"
    how += f", {len(found)} seed{'s' * (len(found) != 1)}"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    return [
        Row(
            f"{name}, {what}",
            statistics.mean(values),
            "points" if "above" in what else f"% of {found[0].evaluation.count:,} turns",
            Bound("least", least) if least else None,
            how,
            cpu,
            beside=f"{min(values):.2f} to {max(values):.2f}",
        )
        for what, (values, least) in columns.items()
    ]


def run(name: str, tasks: Sequence[Track], training: TrainingConfig, runs: Path, results: Path, say: Say) -> Path:
    labels = [f"{name}-{task.model.context}-{task.seed}" for task in tasks]
    found = [score(label, task, training, runs / label, say) for label, task in zip(labels, tasks, strict=True)]
    rows = rows_of(name, found, training)
    for row in rows:
        say(" | ".join(row.cells()))
    context = tasks[0].model.context
    # the files of the default are named by the data alone
    suffix = "" if context == CONTEXTS[0] else f"-{context}"
    option = "--woz FOLDER" if name == "woz" else "--bookings"
    option += f" --context {context}" if suffix else ""
    end = f"--minutes {training.minutes:g}" if training.steps is None else f"--steps {training.steps}"
    command = f"python -m benchmarks.text.track {option} {end} --seeds {len(tasks)}"
    # the files without their paths
    task = {**tasks[0].to_json(), **dict.fromkeys(("train", "valid", "test", "ontology")), "data": name}
    settings = {"task": task, "training": asdict(training), "seeds": [each.json() for each in found]}
    result = Result(
        f"track-{name}{suffix}",
        TITLES[name],
        SAID[name],
        rows,
        commands=[command],
        settings=settings,
        about=About.now(),
    )
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.track", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--woz", type=Path, metavar="FOLDER", help="with the files of WoZ 2.0")
    chosen.add_argument("--bookings", action="store_true", help="the embedded dialogues")
    parser.add_argument("--context", default=CONTEXTS[0], choices=CONTEXTS, help="of earlier turns (%(default)s)")
    parser.add_argument("--minutes", type=float, help="minutes per training (10 for WoZ 2.0, 4 for bookings)")
    parser.add_argument(
        "--steps", type=int, help="steps per training instead of minutes, for a machine with other work"
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings, one per seed (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    name = "woz" if given.woz else "bookings"
    data: dict[str, Any] = {"data": "bookings"}
    if name == "woz":
        data = {
            "train": given.woz / "woz_train_en.json.gz",
            "valid": given.woz / "woz_validate_en.json.gz",
            "ontology": given.woz / "ontology_dstc2_en.json",
        }
    minutes = None if given.steps else given.minutes or MINUTES[name]
    ends = {"minutes": minutes, "steps": given.steps, "threads": given.threads}
    try:
        tasks = [Track.of(**{**data, "context": given.context, **options, "seed": seed}) for seed in range(given.seeds)]
        training = TrainingConfig(**{**Track.training, "average": AVERAGE, **ends})
        written = run(name, tasks, training, given.runs, results, lambda text: print(text, flush=True))
        print("written:", written)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
