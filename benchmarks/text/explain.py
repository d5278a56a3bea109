"""Explanations of texts with known truth, and their cost: `python -m benchmarks.text.explain --runs FOLDER`.

Classifiers of the embedded data set `verdicts`, in which the words that decide are known, are trained with learned and
with uniform attention, over a recurrent encoder and over the words themselves. Per method: of as many highest-ranked
words as decide, the share that does. Then the time of recording a pass of 30 tokens, with and without a look at the
certificates of its maps, and of the rollout of the recording, against the plain pass: one thread, CPU time,
interleaved. `--part` measures one of the two.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from benchmarks.measured import TEXT, About, write
from benchmarks.spent import Spent
from benchmarks.timing import Effort, measure
from benchmarks.training import Say, train
from benchmarks.vision.result import ROOT
from regard.attribution import METHODS
from regard.data.embedded import verdicts
from regard.tasks.classify_text.options import ClassifyText
from regard.training.config import TrainingConfig

RESULT = ROOT / "benchmarks" / "results" / "text" / "explain.json"
PARTS = ("models", "times")
SIZES: dict[str, Any] = {"data": "verdicts", "hops": 1, "penalty": 0.0, "embedding_std": 0.1}
MODELS: dict[str, dict[str, Any]] = {
    "GRU, learned attention": {"cell": "gru"},
    "GRU, uniform attention": {"cell": "gru", "attention": "uniform"},
    "words, learned attention": {"cell": "none"},
    "words, uniform attention": {"cell": "none", "attention": "uniform"},
}
TRAINING = TrainingConfig(steps=400, lr=2e-3, warmup=50, validate_every=100, log_every=200, threads=1)
SEEDS, TEXTS, MEASURED = 3, 100, 10
# what must be reached: the best share of true words, and the times of a rollout and of a recording, of a pass
LEAST_TRUTH, MOST_ROLLOUT, MOST_RECORD = 0.75, 0.2, 1.3
TOKENS = 30


@dataclass(frozen=True)
class Explained:
    """One model, over seeds."""

    model: str
    accuracy: list[float]  # in percent of the test texts, per seed
    truth: dict[str, list[float]]  # the share of true words per method and seed
    comprehensiveness: dict[str, float]  # the mean over all texts and seeds
    agreement: dict[str, float]  # with leave-one-out, the same
    adversarial_share: float  # of texts with a very different map of the same output
    cpu: float  # seconds of all trainings


@dataclass(frozen=True)
class Cost:
    """Times as a multiple of the plain pass: median and quartiles."""

    case: str
    ratio: tuple[float, float, float]
    most: float | None  # None: reported, without a limit
    repetitions: int

    @property
    def is_reached(self) -> bool:
        return self.most is None or self.ratio[0] <= self.most


@dataclass(frozen=True)
class ExplainResult:
    """The result of one command."""

    command: str
    about: About
    texts: int
    models: list[Explained]
    random_truth: float  # the share that a random order has


@dataclass(frozen=True)
class ExplainTimes:
    """The times, which are measured on an idle machine."""

    command: str
    about: About
    costs: list[Cost]


def truth_share(predictor: Any, texts: Sequence[str], topics: Sequence[str], method: str) -> float:
    """Of as many highest-ranked words as decide, the share that does; the mean over texts."""
    shares = []
    for text, topic in zip(texts, topics, strict=True):
        true = set(verdicts.deciding_words(text, topic))
        ranked = regard.attribute(predictor, text, topic, method).ranking()[: len(true)]
        shares.append(len(true & set(ranked)) / len(true))
    return sum(shares) / len(shares)


def explain(
    name: str, runs: Path, training: TrainingConfig, seeds: Sequence[int], count: int, measured: int, say: Say
) -> Explained:
    """Trains a model by every seed and explains the first test texts."""
    test = verdicts.splits(0).test
    texts = test.texts[:count]
    topics = [verdicts.CLASSES[label] for label in test.labels[:count].tolist()]
    accuracy, cpu, reports = [], 0.0, []
    truth: dict[str, list[float]] = {method: [] for method in METHODS}
    for seed in seeds:
        task = ClassifyText.of(**SIZES, **MODELS[name], seed=seed)
        run = runs / "explain" / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
        train(run.name, task, training, run, say)
        spent = Spent.of(run)
        cpu += 0.0 if spent is None else spent.seconds
        predictor: Any = regard.load(run, device="cpu")
        outputs = predictor.predict(texts)
        accuracy.append(100 * sum(o.best == t for o, t in zip(outputs, topics, strict=True)) / len(texts))
        for method, shares in truth.items():
            shares.append(truth_share(predictor, texts, topics, method))
        reports.append(regard.faithfulness(predictor, texts[:measured]))
        say(f"{run.name}: " + ", ".join(f"{method} {shares[-1]:.2f}" for method, shares in truth.items()))
    methods = reports[0].methods

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return Explained(
        name,
        accuracy,
        truth,
        {method: mean([each.comprehensiveness(method) for each in reports]) for method in methods},
        {method: mean([each.agreement(method, "leave-one-out") or 0.0 for each in reports]) for method in methods},
        mean([each.adversarial_share or 0.0 for each in reports]),
        cpu,
    )


def random_truth(count: int) -> float:
    """The expected share of true words in a random order."""
    test = verdicts.splits(0).test
    topics = [verdicts.CLASSES[label] for label in test.labels[:count].tolist()]
    sizes = [len(verdicts.deciding_words(text, topic)) for text, topic in zip(test.texts, topics, strict=False)]
    return sum(sizes) / len(sizes) / verdicts.LENGTH


def forward() -> tuple[nn.Module, Callable[[], object]]:
    """A BERT of the size of MiniLM, and a call of it on 30 tokens."""
    import transformers

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(vocab_size=1000, **sizes)).eval()
    ids = torch.randint(0, 1000, (1, TOKENS))
    return model, lambda: model(input_ids=ids)


def costs(effort: Effort) -> list[Cost]:
    model, call = forward()

    def record() -> regard.recording.Recording:
        with regard.record(model) as recording:
            call()
        return recording

    with torch.no_grad():
        recording = record()
        calls: dict[str, Callable[[], object]] = {
            "plain": call,
            "record": record,
            "record with certificates": lambda: record()[0].certificate,
            "rollout": lambda: recording.rollout()[0].weights.dense(),
        }
        timed = measure(calls, effort, 1)
    count = len(timed.seconds["plain"])
    named = (("rollout", MOST_ROLLOUT), ("record", MOST_RECORD), ("record with certificates", None))
    return [Cost(f"{name}, {TOKENS} tokens", tuple(timed.ratio(name, "plain")), most, count) for name, most in named]


def main(
    arguments: Sequence[str] | None = None,
    *,
    training: TrainingConfig = TRAINING,
    effort: Effort | None = None,
    result: Path = RESULT,
) -> int:
    """`training` and `effort` are for tests: less of each."""
    parsing = argparse.ArgumentParser(prog="python -m benchmarks.text.explain", description=__doc__)
    parsing.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the runs (%(default)s)")
    parsing.add_argument("--seeds", type=int, default=SEEDS, help="trainings per model (%(default)s)")
    parsing.add_argument("--texts", type=int, default=TEXTS, help="texts whose truth is compared (%(default)s)")
    parsing.add_argument("--measured", type=int, default=MEASURED, help="texts of faithfulness (%(default)s)")
    parsing.add_argument("--part", choices=PARTS, help="only the models or only the times (default: both)")
    given = parsing.parse_args(arguments)
    torch.set_num_threads(1)
    parts = PARTS if given.part is None else (given.part,)
    reached = True
    if "times" in parts:
        reached &= _times(Effort(repeat=40, budget=60) if effort is None else effort, result)
    if "models" in parts:
        reached &= _models(given, training, result)
    return 0 if reached else 1


def _say(text: str) -> None:
    print(text, flush=True)


def _times(effort: Effort, result: Path) -> bool:
    """Whether the times are short enough."""
    times = costs(effort)
    for cost in times:
        median, low, high = cost.ratio
        limit = "" if cost.most is None else f", at most {cost.most}"
        _say(f"{cost.case}: {median:.3f} of a pass ({low:.3f} to {high:.3f}){limit}")
    found = ExplainTimes("python -m benchmarks.text.explain --part times", About.now((*TEXT, "transformers")), times)
    _say(f"written: {write(result.with_stem(f'{result.stem}-times'), found)}")
    return all(cost.is_reached for cost in times)


def _models(given: argparse.Namespace, training: TrainingConfig, result: Path) -> bool:
    """Whether the best method finds enough of the true words."""
    seeds, texts, measured = range(given.seeds), given.texts, given.measured
    models = [explain(name, given.runs, training, seeds, texts, measured, _say) for name in MODELS]
    sizes = f"--seeds {given.seeds} --texts {texts} --measured {measured}"
    command = f"python -m benchmarks.text.explain --part models --runs runs {sizes}"
    found = ExplainResult(command, About.now((*TEXT, "transformers")), texts, models, random_truth(texts))
    best = max(sum(shares) / len(shares) for shares in models[0].truth.values())
    _say(
        f"the best share of true words is {best:.2f}, at least {LEAST_TRUTH}; a random order: {found.random_truth:.2f}"
    )
    _say(f"written: {write(result, found)}")
    return best >= LEAST_TRUTH


if __name__ == "__main__":
    sys.exit(main())
