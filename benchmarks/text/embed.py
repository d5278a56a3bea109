"""Vectors of texts: `python -m benchmarks.text.embed --same-day`, or `--pairs A B --valid C D [--encoder FOLDER]`.

Same day: the embedded dates with the options that `regard train embed` chooses, scored on the test pairs. Pairs: line n
of file A belongs to line n of file B; scored on the pairs of --valid, which also select the best weights. The encoder
as it is, before any training, and tf-idf stand beside the scores.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import regard
from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.text.classify import RESULTS, Scored
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import Result, Row
from regard.data.text.pairs import read_pairs
from regard.inference.evaluation import Evaluation
from regard.tasks.embed.options import Embed
from regard.tasks.embed.task import evaluate_pairs
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig

SCORES = ("recall@1", "recall@10", "mrr")
SAID = {
    "same-day": "Dates in two of ten languages that name the same day; the days of the test pairs are in no other.\n",
    "pairs": "The pairs that are scored also chose the best weights, so the scores are somewhat too high.\n",
}


def score(name: str, task: Embed, training: TrainingConfig, run: Path, say: Say) -> Scored:
    """Trains to the end of `training`, and evaluates."""
    train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, run, task.Evaluate(), lambda done, count: None)
    spent = Spent.of(run)
    scored = Scored(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {scored.json()}")
    return scored


def untrained(task: Embed, encoder: Path) -> Evaluation:
    """The scores of the encoder as it is."""
    predictor: Any = regard.load(encoder, device="cpu")
    return evaluate_pairs(predictor, read_pairs(task.valid), "valid", lambda done, count: None, task.temperature)


def rows_of(name: str, found: Sequence[Scored], training: TrainingConfig, before: Evaluation | None) -> list[Row]:
    """The mean over seeds of every score, with its spread, and the scores that it must be compared with."""
    end = f"{training.minutes:g} minutes" if training.steps is None else f"{training.steps:,} steps"
    how = f"{end}, {training.threads} thread{'s' * (training.threads != 1)}, {len(found)} seeds"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    unit = f"% of {found[0].evaluation.count:,} pairs, {found[0].evaluation.facts['candidates']:,} candidates"
    rows = []
    for metric in SCORES:
        values = [each.evaluation.scores[metric] for each in found]
        spread = f"{min(values):.2f} to {max(values):.2f}"
        rows.append(Row(f"{name}, trained, {metric}", statistics.mean(values), unit, None, how, cpu, beside=spread))
    beside = {} if before is None else {"encoder as it is": before.scores}
    beside["tf-idf"] = found[0].evaluation.facts["baseline"]["scores"]
    rows += [
        Row(f"{name}, {who}, {metric}", scores[metric], unit) for who, scores in beside.items() for metric in SCORES
    ]
    return rows


def run(
    name: str,
    tasks: Sequence[Embed],
    training: TrainingConfig,
    encoder: Path | None,
    runs: Path,
    results: Path,
    say: Say,
) -> Path:
    label = f"embed-{name}" + ("" if encoder is None else "-encoder")
    before = None if encoder is None else untrained(tasks[0], encoder)
    found = [score(f"{label}-{task.seed}", task, training, runs / f"{label}-{task.seed}", say) for task in tasks]
    rows = rows_of(name, found, training, before)
    for row in rows:
        say(" | ".join(row.cells()))
    option = "--same-day" if name == "same-day" else "--pairs A B --valid C D"
    option += "" if encoder is None else " --encoder FOLDER"
    end = f"--minutes {training.minutes:g}" if training.steps is None else f"--steps {training.steps}"
    command = f"python -m benchmarks.text.embed {option} {end} --seeds {len(tasks)} --threads {training.threads}"
    # the files without their paths
    task = {**tasks[0].to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name}
    task["model"] = {key: value for key, value in task["model"].items() if key != "encoder"}
    settings = {"task": task, "training": asdict(training), "seeds": [each.json() for each in found]}
    title = {"same-day": "Dates of the same day", "pairs": "Pairs of texts"}[name]
    result = Result(label, title, SAID[name], rows, commands=[command], settings=settings, about=About.now())
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.embed", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--same-day", action="store_true", help="the embedded dates")
    chosen.add_argument("--pairs", type=Path, nargs=2, metavar="FILE", help="texts, one per line, plain or .gz")
    parser.add_argument("--valid", type=Path, nargs=2, metavar="FILE", help="with --pairs: the pairs that are scored")
    parser.add_argument("--encoder", type=Path, metavar="FOLDER", help="with --pairs: train this pretrained encoder")
    parser.add_argument("--minutes", type=float, default=3.0, help="minutes per training (%(default)s)")
    parser.add_argument("--steps", type=int, help="or steps per training")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings, one per seed (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    if given.same_day and (given.valid or given.encoder):
        parser.error("--valid and --encoder are for --pairs; leave them out")
    if given.pairs and not given.valid:
        parser.error("--pairs needs --valid FILE FILE, the pairs that are scored")
    name = "same-day" if given.same_day else "pairs"
    data: dict[str, Any] = {"data": name} if given.same_day else {"train": given.pairs, "valid": given.valid}
    data |= {} if given.encoder is None else {"encoder": given.encoder}
    end: dict[str, Any] = {"minutes": given.minutes} if given.steps is None else {"steps": given.steps}
    try:
        tasks = [Embed.of(**{**data, **options, "seed": seed}) for seed in range(given.seeds)]
        training = TrainingConfig(**{**Embed.training_defaults(tasks[0].model), **end, "threads": given.threads})
        written = run(name, tasks, training, given.encoder, given.runs, results, lambda text: print(text, flush=True))
        print("written:", written)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
