"""Taggers: `python -m benchmarks.text.tag --snips FOLDER`, `--ncbi FOLDER` or `--fields` [--minutes N].

Snips: slots and intents of voice commands (train/ and valid/ of Goo et al. 2018). NCBI: disease names in abstracts
(train.tsv.gz, devel.tsv.gz). Both are scored on the sentences that select the best weights, since their test sets are
kept apart. Fields: the embedded fields, scored on their test sentences, beside a tagger with a window of three words.
With --encoder a pretrained encoder is fine-tuned instead.
"""

import argparse
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
from regard.tasks.tag.options import Tag
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
TITLES = {"snips": "Snips slots", "ncbi": "NCBI disease", "fields": "Fields"}
MINUTES = {"snips": 10.0, "ncbi": 20.0, "fields": 4.0}
LEAST = {"snips": 93.0, "ncbi": 76.0, "fields": 98.0}
LEAST_ENCODED = {"ncbi": 80.0}
SELECTED = "The best weights are chosen on the sentences that are scored, so the scores are somewhat too high.\n"
SAID = {
    "snips": "Slots of voice commands, on the 700 sentences of valid{how}. " + SELECTED,
    "ncbi": "Disease names in abstracts, on the 923 sentences of devel{how}. " + SELECTED,
    "fields": "Dates, numbers and currencies that the named place decides, on 1,200 test sentences.\n",
}


@dataclass(frozen=True)
class Scored:
    """One training: its evaluation, and the CPU seconds it took."""

    evaluation: Evaluation
    step: int
    cpu: float | None


def score(name: str, task: Tag, training: TrainingConfig, run: Path, say: Say) -> Scored:
    """Trains to the end of `training`, and evaluates."""
    train(name, task, training, run, say)
    loaded = load_run(run, device="cpu")
    evaluation = task.load().evaluate(loaded.predictor, run, task.Evaluate(), lambda done, count: None)
    spent = Spent.of(run)
    scored = Scored(evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {dict(evaluation.scores)}")
    return scored


def rows_of(name: str, found: dict[str, Scored], training: TrainingConfig) -> list[Row]:
    end = (
        f"{training.minutes:g} minutes"
        if training.epochs is None
        else f"{training.epochs:g} epoch{'s' * (training.epochs != 1)}"
    )
    how = f"{end}, {training.threads} thread{'s' * (training.threads != 1)}"
    rows = []
    for model, scored in found.items():
        scores, intervals = scored.evaluation.scores, scored.evaluation.intervals
        for metric in ("strict f1", "lenient f1", "intent accuracy"):
            if metric in scores:
                least = {"recurrent": LEAST, "pretrained": LEAST_ENCODED}.get(model, {}).get(name)
                bound = Bound("least", least) if metric == "strict f1" and least is not None else None
                low, high = intervals[metric]
                unit = f"% of {scored.evaluation.count:,} sentences"
                beside = f"95 % interval {low:.2f} to {high:.2f}"
                rows.append(Row(f"{name}, {model}, {metric}", scores[metric], unit, bound, how, scored.cpu, 2, beside))
    return rows


def run(name: str, tasks: dict[str, Tag], training: TrainingConfig, runs: Path, results: Path, say: Say) -> Path:
    is_encoded = "pretrained" in tasks
    full = f"{name}-encoder" if is_encoded else name
    found = {
        model: score(f"{name}-{model}", task, training, runs / f"{name}-{model}", say) for model, task in tasks.items()
    }
    rows = rows_of(name, found, training)
    for row in rows:
        say(" | ".join(row.cells()))
    option = ("--fields" if name == "fields" else f"--{name} FOLDER") + " --encoder FOLDER" * is_encoded
    end = f"--minutes {training.minutes:g}" if training.epochs is None else f"--epochs {training.epochs:g}"
    command = f"python -m benchmarks.text.tag {option} {end} --lr {training.lr:g} --threads {training.threads}"
    # the files without their paths
    settings = {
        "tasks": {model: _without_paths(task, name) for model, task in tasks.items()},
        "training": asdict(training),
        "steps": {model: scored.step for model, scored in found.items()},
        "malformed": {model: scored.evaluation.facts["malformed"] for model, scored in found.items()},
    }
    title = TITLES[name] + ", fine-tuned" * is_encoded
    said = SAID[name].replace("{how}", ", with a pretrained encoder" if is_encoded else ", from scratch")
    result = Result(full, title, said, rows, commands=[command], settings=settings, about=About.now())
    return result.write(results)


def _without_paths(task: Tag, name: str) -> dict[str, Any]:
    """The options; an encoder is the name of its folder."""
    options = {**task.to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name}
    if "encoder" in options["model"]:
        options["model"]["encoder"] = Path(options["model"]["encoder"]).name
    return options


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.tag", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "--snips", type=Path, metavar="FOLDER", help="a folder with train/ and valid/ of seq.in, seq.out"
    )
    chosen.add_argument("--ncbi", type=Path, metavar="FOLDER", help="a folder with train.tsv.gz and devel.tsv.gz")
    chosen.add_argument("--fields", action="store_true", help="the embedded fields")
    parser.add_argument("--encoder", type=Path, metavar="FOLDER", help="fine-tune this pretrained encoder")
    parser.add_argument("--minutes", type=float, help="minutes per training (10 for snips, 20 for ncbi, 4 for fields)")
    parser.add_argument("--epochs", type=float, help="end after this many epochs instead")
    parser.add_argument("--lr", type=float, help="the peak of the learning rate (that of `regard train tag`)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    name = "fields" if given.fields else "snips" if given.snips is not None else "ncbi"
    try:
        if name == "fields":
            data: dict[str, Any] = {"data": "fields"}
        elif name == "snips":
            data = {"train": given.snips / "train", "valid": given.snips / "valid"}
        else:
            data = {"train": given.ncbi / "train.tsv.gz", "valid": given.ncbi / "devel.tsv.gz"}
        models = ("recurrent", "window") if name == "fields" else ("recurrent",)
        if given.encoder is not None:
            models, data = ("pretrained",), {**data, "encoder": given.encoder}
        tasks = {model: Tag.of(**{**data, "model": model, **options}) for model in models}
        chosen_training = Tag.training_defaults(tasks[models[0]].model)
        end = {"minutes": given.minutes or MINUTES[name]} if given.epochs is None else {"epochs": given.epochs}
        training = {**chosen_training, **end, "lr": given.lr or chosen_training["lr"], "threads": given.threads}
        written = run(
            name, tasks, TrainingConfig(**training), given.runs, results, lambda text: print(text, flush=True)
        )
        print("written:", written)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
