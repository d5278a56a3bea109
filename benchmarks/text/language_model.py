"""Language models: `python -m benchmarks.text.language_model --shakespeare FILE`, or `--war-and-peace FILE`.

Shakespeare: a GPT of 4 layers of width 128 on characters, scored on the last tenth. War and Peace: Transformer-XL with
a memory of 128 characters against the same model without one, segments of 128 characters, scored on the same
characters. Both start with the weights of one training without a memory, which takes most of their time: a model learns
sooner from short contexts (Press et al. 2021, Shortformer). `--tokens bpe` has sub-words instead of characters.
`python -m benchmarks.robustness.kills --tasks language-model --kills 20` kills a training with a memory.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row
from regard.inference.evaluation import Evaluation
from regard.tasks.language_model.options import EvaluateLanguageModel, LanguageModelConfig
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig
from regard.training.run_folder import RECORD, RunRecord

RESULTS = ROOT / "benchmarks" / "results" / "text"
MEMORY = 128

SHAKESPEARE = """\
The first nine tenths of the plays train a GPT of 4 layers of width 128, 4 heads, segments of 64 characters; the last
tenth selects the best weights by its first 20,000 characters and is scored whole, each character once.
"""
WAR_AND_PEACE = """\
Transformer-XL of 4 layers of width 128 on {tokens}, in segments of 128: with a memory of {memory} of them, and without
one. One training without a memory, at a constant learning rate, takes the first {share:.0%} of the processor time of
both; each goes on from its weights for the rest. They are scored on the last tenth, segment by segment, each token
once: without a memory, the first token of a segment is predicted from one token.
"""
DATA: dict[str, dict[str, dict[str, Any]]] = {
    "shakespeare": {"gpt2": {"model": "gpt2", "positions": "rotary", "segment": 64, "batch": 12}},
}
# options of both models of War and Peace, by their tokens
XL: dict[str, Any] = {"model": "transformer-xl", "segment": 128, "batch": 12, "norm": "pre"}
TOKENS: dict[str, dict[str, Any]] = {
    "war-and-peace": {**XL, "tokens": "characters"},
    # the novel has few of them: without dropout they are learned by heart
    "war-and-peace-bpe": {**XL, "tokens": "bpe", "vocabulary": 1000, "dropout": 0.1},
}
DATA |= {name: {f"memory {m}": {**options, "memory": m} for m in (MEMORY, 0)} for name, options in TOKENS.items()}
LR = 2e-3
MINUTES = 5.0
CPU_MINUTES = 8.0
# steps that are timed to turn processor time into a number of steps; the first ones are left out
_TIMED, _WARMUP = 16, 4
# the training that both models of War and Peace start from, and its share of their time
START, SHARE = "start", 0.8


def affordable_steps(task: LanguageModelConfig, seconds: float, precision: str) -> int:
    """The number of training steps in this much processor time, by the median of a few steps on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        problem = task.prepare(Path(folder))
    model = problem.build_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    times = []
    for planned in problem.plan_epoch(0)[:_TIMED]:
        start = time.process_time()
        batch = problem.load_batch(planned, 0, 1)
        assert batch is not None
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = problem.loss(model, batch)
        (loss.total / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time() - start)
    return max(round(seconds / statistics.median(times[_WARMUP:] or times)), 1)


def training_of(
    task: LanguageModelConfig, training: TrainingConfig, run: Path, cpu_minutes: float | None
) -> TrainingConfig:
    """The training with as many steps as `cpu_minutes` afford; a run that was stopped keeps its own."""
    if cpu_minutes is None:
        return training
    if (run / RECORD).exists():
        return RunRecord.read(run).training
    torch.set_num_threads(training.threads or 1)
    return replace(training, minutes=None, steps=affordable_steps(task, 60 * cpu_minutes, training.precision))


def start(
    name: str,
    tasks: dict[str, LanguageModelConfig],
    training: TrainingConfig,
    cpu_minutes: float | None,
    folder: Path,
    say: Say,
) -> None:
    """Trains the weights that the models of War and Peace start with: those of the model without a memory."""
    task = tasks["memory 0"]
    training = replace(training_of(task, training, folder, cpu_minutes), schedule="constant")
    train(f"{name}, {START}", task, training, folder, say)


def score(
    name: str, task: LanguageModelConfig, training: TrainingConfig, run: Path, say: Say, init_from: Path | None = None
) -> tuple[Evaluation, float | None]:
    """Trains to the end of `training`; the scores of the held-out text, and the CPU seconds."""
    train(name, task, training, run, say, init_from)
    loaded = load_run(run, device="cpu")
    # without overlap, so that models with and without a memory are scored on the same segments
    options = EvaluateLanguageModel(window=task.segment, stride=task.segment)
    evaluation = task.load().evaluate(loaded.predictor, run, options, lambda done, count: None)
    say(f"{name}: {dict(evaluation.scores)}")
    spent = [Spent.of(folder) for folder in (run, init_from) if folder is not None]
    return evaluation, None if None in spent else sum(each.seconds for each in spent if each is not None)


def rows_of(
    name: str, found: dict[str, tuple[Evaluation, float | None]], trainings: dict[str, TrainingConfig]
) -> list[Row]:
    rows = []
    for model, (evaluation, cpu) in found.items():
        training = trainings[model]
        end = f"{training.steps:,} steps" if training.minutes is None else f"{training.minutes:g} minutes"
        how = f"{end}, {training.threads} thread{'s' * (training.threads != 1)}"
        nats, bits = evaluation.scores["nll"], evaluation.scores["bits per character"]
        bound = Bound("most", 1.85) if name == "shakespeare" else None
        unit = f"nats per {unit_of(name)} of {evaluation.count:,}"
        rows.append(Row(f"{name}, {model}", nats, unit, bound, how, cpu, digits=3, beside=f"{bits:.3f} bits"))
    if name in TOKENS:
        with_memory, without = (evaluation.scores["nll"] for evaluation, _ in found.values())
        gain, unit = without - with_memory, f"nats per {unit_of(name)}"
        rows.append(Row(f"{name}, gain of the memory", gain, unit, Bound("least", 0.03), "", digits=3))
    return rows


def unit_of(name: str) -> str:
    return "token" if name == "war-and-peace-bpe" else "character"


def run(
    name: str,
    path: Path,
    training: TrainingConfig,
    cpu_minutes: float | None,
    runs: Path,
    results: Path,
    say: Say,
    options: dict[str, Any],
) -> Path:
    tasks = {
        model: LanguageModelConfig.of(**{"train": (path,), "tokens": "characters", **choices, **options})
        for model, choices in DATA[name].items()
    }
    folders = {model: runs / f"{name}-{model.replace(' ', '-')}" for model in tasks}
    init_from = runs / f"{name}-{START}" if name in TOKENS else None
    end = f"--minutes {training.minutes:g}" if cpu_minutes is None else f"--cpu-minutes {cpu_minutes:g}"
    end += "" if training.precision == "float32" else f" --precision {training.precision}"
    if init_from is not None:
        minutes = training.minutes or 0.0
        first = replace(training, minutes=SHARE * minutes)
        start(name, tasks, first, None if cpu_minutes is None else SHARE * cpu_minutes, init_from, say)
        training = replace(training, minutes=(1 - SHARE) * minutes)
        cpu_minutes = None if cpu_minutes is None else (1 - SHARE) * cpu_minutes
    trainings = {model: training_of(task, training, folders[model], cpu_minutes) for model, task in tasks.items()}
    found = {
        model: score(f"{name}, {model}", task, trainings[model], folders[model], say, init_from)
        for model, task in tasks.items()
    }
    rows = rows_of(name, found, trainings)
    for row in rows:
        say(" | ".join(row.cells()))
    data = "shakespeare FILE" if name == "shakespeare" else f"war-and-peace FILE --tokens {TOKENS[name]['tokens']}"
    command = f"python -m benchmarks.text.language_model --{data} {end}"
    settings = {
        # the files without their paths
        "tasks": {model: {**task.to_json(), "train": name} for model, task in tasks.items()},
        "training": {model: asdict(each) for model, each in trainings.items()},
        "scores": {model: dict(evaluation.scores) for model, (evaluation, _) in found.items()},
    }
    title, said = "Shakespeare", SHAKESPEARE
    if name in TOKENS:
        tokens = "sub-words" if name == "war-and-peace-bpe" else "characters"
        title, said = f"War and Peace, {tokens}", WAR_AND_PEACE.format(tokens=tokens, memory=MEMORY, share=SHARE)
    about = About.now()
    return Result(name, title, said, rows, commands=[command], settings=settings, about=about).write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.language_model", description=__doc__)
    parser.add_argument("--shakespeare", type=Path, metavar="FILE", help="the plays as one text, plain or .gz")
    parser.add_argument("--war-and-peace", type=Path, metavar="FILE", help="the novel as one text, plain or .gz")
    parser.add_argument(
        "--tokens", choices=("characters", "bpe"), default="characters", help="of War and Peace (%(default)s)"
    )
    parser.add_argument("--minutes", type=float, help="minutes per training (5 for Shakespeare)")
    parser.add_argument("--cpu-minutes", type=float, help="or minutes of processor time (8 for War and Peace)")
    parser.add_argument("--lr", type=float, default=LR, help="the peak of the learning rate (%(default)s)")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of products in training (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = parser.parse_args(arguments)
    if (given.shakespeare is None) == (given.war_and_peace is None):
        parser.error("give --shakespeare FILE or --war-and-peace FILE")
    if given.minutes is not None and given.cpu_minutes is not None:
        parser.error("give --minutes or --cpu-minutes")
    name = "shakespeare" if given.war_and_peace is None else "war-and-peace" + "-bpe" * (given.tokens == "bpe")
    cpu_minutes = CPU_MINUTES if name in TOKENS and given.minutes is None else None
    cpu_minutes = given.cpu_minutes or cpu_minutes
    chosen = {
        "minutes": given.minutes or MINUTES,
        "lr": given.lr,
        "threads": given.threads,
        "precision": given.precision,
    }
    training = TrainingConfig(**{**LanguageModelConfig.training, **chosen})
    try:
        path = given.shakespeare or given.war_and_peace

        def say(text: str) -> None:
            print(text, flush=True)

        print("written:", run(name, path, training, cpu_minutes, given.runs, results, say, options))
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
