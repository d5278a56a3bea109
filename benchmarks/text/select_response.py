"""Responses to dialogues: `python -m benchmarks.text.select_response --dailydialog FOLDER` or `--bookings`.

DailyDialog (Li et al. 2017): trained on the dialogues of dialogues_text_En.txt.gz, scored on en_dev_human.txt.gz, which
also selects the best weights; one response per dialogue among nine of other dialogues. Bookings: the embedded
dialogues, scored on their test part. Seeds decide candidates and weights. With --encoder, the frozen states of a
released encoder are the vectors of tokens; without it, vectors are trained from scratch. tf-idf is scored beside them.
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
from regard.tasks.select_response.options import SelectResponse
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
TITLES = {"dailydialog": "DailyDialog", "bookings": "Bookings"}
EPOCHS = {"dailydialog": 3.0, "bookings": 3.0}
RECALLS = ("recall at 1", "recall at 2", "recall at 5")
SAID = {
    "dailydialog": "Responses to everyday conversations, one of ten. The best weights are chosen on the dialogues that "
    "are scored, so recall is somewhat too high.\n",
    "bookings": "The next turn of a system that books tables, one of ten, on test dialogues.\n",
}


@dataclass(frozen=True)
class Scored:
    """One training: its evaluation, and the CPU seconds it took."""

    seed: int
    evaluation: Evaluation
    step: int
    cpu: float | None

    @property
    def baseline(self) -> dict[str, float]:
        scores: dict[str, float] = self.evaluation.facts["baseline"]["scores"]
        return scores


def least_recall(name: str, baseline: float) -> float:
    """The bound of recall at 1, given that of tf-idf."""
    return max(42.0, baseline) if name == "dailydialog" else min(98.0, baseline + 20)


def score(name: str, task: SelectResponse, training: TrainingConfig, run: Path, say: Say) -> Scored:
    """Trains to the end of `training`, and evaluates."""
    train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, run, task.Evaluate(), lambda done, count: None)
    spent = Spent.of(run)
    say(f"{name}: {dict(evaluation.scores)}, tf-idf {evaluation.facts['baseline']['scores']}")
    return Scored(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)


def rows_of(name: str, model: str, found: Sequence[Scored], training: TrainingConfig) -> list[Row]:
    """The mean over seeds of every recall, of the model and of tf-idf, with the spread."""
    count, seeds = found[0].evaluation.count, len(found)
    how = f"{training.epochs:g} epochs, {training.threads} thread{'s' * (training.threads != 1)}, "
    how += f"{seeds} seed{'s' * (seeds != 1)}"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    rows = []
    for recall in RECALLS:
        own, other = [each.evaluation.scores[recall] for each in found], [each.baseline[recall] for each in found]
        bound = Bound("least", round(least_recall(name, statistics.mean(other)), 2)) if recall == RECALLS[0] else None
        for label, values, limit, seconds in ((model, own, bound, cpu), ("tf-idf", other, None, None)):
            beside = f"{min(values):.2f} to {max(values):.2f}"
            if seeds == 1 and label == model:
                low, high = found[0].evaluation.intervals[recall]
                beside = f"95 % interval {low:.2f} to {high:.2f}"
            what, unit = f"{name}, {label}, {recall} of 10", f"% of {count:,} contexts"
            rows.append(Row(what, statistics.mean(values), unit, limit, how, seconds, beside=beside))
    return rows


def run(
    name: str, tasks: Sequence[SelectResponse], training: TrainingConfig, runs: Path, results: Path, say: Say
) -> Path:
    model = tasks[0].model_name
    is_encoded = tasks[0].model.encoder is not None
    label = f"{name}-{model}" + "-encoder" * is_encoded
    found = [score(f"{label}-{task.seed}", task, training, runs / f"{label}-{task.seed}", say) for task in tasks]
    rows = rows_of(name, model, found, training)
    for row in rows:
        say(" | ".join(row.cells()))
    option = ("--bookings" if name == "bookings" else "--dailydialog FOLDER") + " --encoder FOLDER" * is_encoded
    command = f"python -m benchmarks.text.select_response {option} --model {model} --epochs {training.epochs:g}"
    command += f" --turns {tasks[0].turns} --words {tasks[0].words} --lr {training.lr:g} --seeds {len(tasks)}"
    command += f" --threads {training.threads}"
    # the files without their paths
    options = {**tasks[0].to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name}
    if is_encoded:
        options["model"]["encoder"] = Path(options["model"]["encoder"]).name
    seeds = [{"seed": each.seed, "step": each.step, "scores": dict(each.evaluation.scores)} for each in found]
    settings = {"task": options, "training": asdict(training), "seeds": seeds}
    title = TITLES[name] + ", frozen token vectors" * is_encoded
    result = Result(label, title, SAID[name], rows, commands=[command], settings=settings, about=About.now())
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.select_response", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    files = "with dialogues_text_En.txt.gz and en_dev_human.txt.gz"
    chosen.add_argument("--dailydialog", type=Path, metavar="FOLDER", help=files)
    chosen.add_argument("--bookings", action="store_true", help="the embedded bookings")
    parser.add_argument("--encoder", type=Path, metavar="FOLDER", help="a released encoder, for frozen token vectors")
    parser.add_argument("--model", default="deep-attention", choices=tuple(SelectResponse.models), help="(%(default)s)")
    parser.add_argument("--turns", type=int, help="turns before a response that are read (5; 6 for bookings)")
    parser.add_argument("--words", type=int, help="tokens of a turn that are read (30; 12 for bookings)")
    parser.add_argument("--epochs", type=float, help="passes over the training dialogues (3)")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings, one per seed (%(default)s)")
    parser.add_argument("--lr", type=float, default=SelectResponse.training["lr"], help="its peak (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    name = "bookings" if given.bookings else "dailydialog"
    data: dict[str, Any] = {"data": "bookings"}
    if name == "dailydialog":
        folder = given.dailydialog
        data = {"train": folder / "dialogues_text_En.txt.gz", "valid": folder / "en_dev_human.txt.gz"}
    if given.encoder is not None:
        data["encoder"] = given.encoder
    data |= {size: getattr(given, size) for size in ("turns", "words") if getattr(given, size) is not None}
    ends = {"epochs": given.epochs or EPOCHS[name], "threads": given.threads, "lr": given.lr}
    try:
        tasks = [
            SelectResponse.of(**{**data, "model": given.model, **options, "seed": seed}) for seed in range(given.seeds)
        ]
        training = TrainingConfig(**{**SelectResponse.training, **ends})
        print("written:", run(name, tasks, training, given.runs, results, lambda text: print(text, flush=True)))
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
