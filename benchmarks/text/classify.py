"""Text classifiers: `python -m benchmarks.text.classify --trec FOLDER [--minutes 5] [--seeds 3] [--encoder FOLDER]`.

TREC: six classes of questions (Li and Roth 2002) by the self-attentive model. Every seed holds out a different tenth of
the training questions, which selects the best weights and is scored, unless the folder also has TREC.test.all.
SST-2: the sentiment of sentences (Socher et al. 2013), scored on dev; with an encoder a tenth of the training sentences
chooses the weights. CLINC150: 150 intents (Larson et al. 2019), on val. Documents: the embedded reports by the
hierarchical model, scored on their test texts.
With --encoder a pretrained encoder is fine-tuned instead.
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
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"

SELECTED = """\
The best weights of every run are chosen on the same texts that are scored, so the accuracy is somewhat too high. The
baselines choose nothing and learn from the same texts: the bag of words, a logistic regression, with single words and
pairs of words, naive Bayes with single words.
"""
SAID = {
    "trec": """\
Questions with one of six coarse classes. Every seed holds out a different tenth of the training questions of each
class, without duplicates. The best weights of every run are chosen on the same questions that are scored, so the
accuracy is somewhat too high. The baselines choose nothing and learn from the same questions and tokens: the bag of
words, a logistic regression, also with pairs of tokens, and naive Bayes.
""",
    "documents": """\
Generated reports of three to eight sentences, one of which decides the class. Evidence attention is the share of the
sentence attention that is on this sentence, the mean over the test texts.
""",
    "sst2": """\
Sentences of film reviews, positive or negative. Every seed trains on another 98 % of the 6,920 training sentences, and
its last weights are scored on dev, 872 sentences, once. Sizes, dropout and training were chosen on held-out tenths of
the training sentences. Both baselines learn from the same sentences: the bag of words, a logistic regression, with
single words and pairs of words, naive Bayes with single words, all of them.
""",
    "sst2-encoder": """\
Sentences of film reviews, positive or negative. Every seed holds out a different tenth of the 6,920 training sentences,
which chooses the best weights; dev, 872 sentences, is scored once. Both baselines learn from the same sentences: the
bag of words, a logistic regression, with single words and pairs of words, naive Bayes with single words, all of them.
""",
    "clinc": f"Requests with one of 150 intents: 15,000 to train on, 3,000 of val, none out of scope. {SELECTED}",
}
TITLES = {"trec": "TREC", "documents": "Documents", "sst2": "SST-2", "clinc": "CLINC150"}
# of accuracies, from scratch and with an encoder
LEAST = {"trec": 87.0, "sst2": 80.0}
LEAST_ENCODED = {"trec": 94.0, "sst2": 87.0, "clinc": 95.0}
# options that suit a data set, from scratch and with an encoder, and those of its training
OPTIONS: dict[str, dict[str, Any]] = {
    "documents": {"data": "documents", "model": "hierarchical"},
    "sst2": {
        "vocabulary": 20_000,
        "min_count": 1,
        "cell": "none",
        "width": 100,
        "embedding_std": 0.05,
        "initial_embeddings": "log-ratios",
        "hops": 4,
        "feed": 64,
        "penalty": 0.0,
        "dropout": 0.5,
        "word_dropout": 0.1,
        "batch": 640,
        "valid_share": 0.02,
    },
}
TRAINING: dict[str, dict[str, Any]] = {
    "sst2": {
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 100,
        "weight_decay": 0.3,
        # once, at the end: nothing is chosen
        "validate_every": 10_000,
    }
}
OPTIONS_ENCODED: dict[str, dict[str, Any]] = {
    "clinc": {"freeze": "3"},
    # the words of the baselines
    "sst2": {"vocabulary": 20_000, "min_count": 1},
}
TRAINING_ENCODED: dict[str, dict[str, Any]] = {"clinc": {"lr": 3e-4, "validate_every": 200}}
EPOCHS = {"trec": 4, "sst2": 2, "clinc": 2}
EPOCHS_FROM_SCRATCH = {"sst2": 3}


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
    evaluation = task.load().evaluate(loaded.predictor, run, task.Evaluate(), lambda done, count: None)
    spent = Spent.of(run)
    scored = Scored(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {scored.json()}")
    return scored


def rows_of(name: str, found: Sequence[Scored], training: TrainingConfig, is_encoded: bool = False) -> list[Row]:
    """The mean over seeds of each score, with its spread."""
    scores = {
        "accuracy": [each.evaluation.scores["accuracy"] for each in found],
        "bag of words": [each.evaluation.facts["baseline"]["scores"]["accuracy"] for each in found],
        "naive Bayes": [each.evaluation.facts["naive_bayes"]["scores"]["accuracy"] for each in found],
        "macro F1": [each.evaluation.scores["macro f1"] for each in found],
    }
    least = (LEAST_ENCODED if is_encoded else LEAST).get(name)
    below = [statistics.mean(scores[baseline]) for baseline in ("bag of words", "naive Bayes")]
    bounds = {} if least is None else {"accuracy": Bound("least", max(least, *below))}
    if name == "documents":
        scores["evidence attention"] = [each.evaluation.scores["evidence"] for each in found]
        bounds = {"evidence attention": Bound("least", 90.0)}
    end = f"{training.minutes:g} minutes" if training.epochs is None else f"{training.epochs} epochs"
    how = f"{end}, {training.threads} thread{'s' * (training.threads != 1)}, {len(found)} seeds"
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    count = found[0].evaluation.count
    title = f"{name}, encoder" if is_encoded else name
    return [
        Row(
            f"{title}, {score}",
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
    is_encoded = tasks[0].model_name == "pretrained"
    full = f"{name}-encoder" if is_encoded else name
    found = [score(f"{full}-{task.seed}", task, training, runs / f"{full}-{task.seed}", say) for task in tasks]
    rows = rows_of(name, found, training, is_encoded)
    for row in rows:
        say(" | ".join(row.cells()))
    option = "--documents" if name == "documents" else f"--{name} FOLDER"
    option += " --encoder FOLDER" if is_encoded else ""
    end = f"--minutes {training.minutes:g}" if training.epochs is None else f"--epochs {training.epochs}"
    command = f"python -m benchmarks.text.classify {option} {end} --seeds {len(tasks)} --threads {training.threads}"
    settings = {
        "task": _without_paths(tasks[0], name),
        "training": asdict(training),
        "seeds": [each.json() for each in found],
    }
    title = f"{TITLES[name]}, fine-tuned" if is_encoded else TITLES[name]
    result = Result(
        full, title, SAID.get(full, SAID[name]), rows, commands=[command], settings=settings, about=About.now()
    )
    return result.write(results)


def _without_paths(task: ClassifyText, name: str) -> dict[str, Any]:
    """The options; files are their names."""
    options = {**task.to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name}
    if "encoder" in options["model"]:
        options["model"]["encoder"] = Path(options["model"]["encoder"]).name
    return options


def data_options(name: str, folder: Path | None) -> dict[str, Any]:
    """The files of a data set as they are published."""
    if folder is None:
        return {}
    if name == "sst2":
        return {"train": folder / "stsa.binary.train.gz", "test": folder / "stsa.binary.dev.gz"}
    if name == "clinc":
        return dict.fromkeys(("train", "valid"), folder / "data_full.json.gz")
    test = folder / "TREC.test.all"
    return {"train": folder / "TREC.train.all", **({"test": test} if test.exists() else {})}


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.classify", description=__doc__)
    parser.add_argument("--trec", type=Path, metavar="FOLDER", help="a folder with TREC.train.all, as published")
    parser.add_argument("--sst2", type=Path, metavar="FOLDER", help="a folder with stsa.binary.train.gz and .dev.gz")
    parser.add_argument("--clinc", type=Path, metavar="FOLDER", help="a folder with data_full.json.gz")
    parser.add_argument("--documents", action="store_true", help="use the embedded documents instead")
    parser.add_argument("--encoder", type=Path, metavar="FOLDER", help="fine-tune this pretrained encoder")
    parser.add_argument("--minutes", type=float, help="minutes per training (5 from scratch, 10 with an encoder)")
    parser.add_argument("--epochs", type=int, help="epochs per training; with an encoder few, in at most the minutes")
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings, one per seed (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the processor (%(default)s)")
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = parser.parse_args(arguments)
    folders = {name: getattr(given, name) for name in ("trec", "sst2", "clinc") if getattr(given, name) is not None}
    if len(folders) + given.documents != 1:
        parser.error("give one of --trec FOLDER, --sst2 FOLDER, --clinc FOLDER and --documents")
    name = next(iter(folders), "documents")
    try:
        is_encoded = given.encoder is not None
        suiting = (OPTIONS_ENCODED if is_encoded else OPTIONS).get(name, {})
        # the files are tokenized already: their words are those between spaces
        words = {} if name == "documents" else {"tokens": "words"}
        data = {**data_options(name, folders.get(name)), **words, **suiting, **options, "encoder": given.encoder}
        tasks = [ClassifyText.of(**{**data, "seed": seed}) for seed in range(given.seeds)]
        chosen = {**ClassifyText.training_defaults(tasks[0].model), "threads": given.threads}
        usual = None if given.minutes else (EPOCHS if is_encoded else EPOCHS_FROM_SCRATCH).get(name)
        epochs = given.epochs or usual
        end = {"minutes": given.minutes or 5.0} if epochs is None else {"epochs": epochs}
        chosen |= (TRAINING_ENCODED if is_encoded else TRAINING).get(name, {})
        training = TrainingConfig(**{**chosen, **end})
        print("written:", run(name, tasks, training, given.runs, results, lambda text: print(text, flush=True)))
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
