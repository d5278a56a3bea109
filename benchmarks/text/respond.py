"""Replies: `python -m benchmarks.text.respond --dailydialog FOLDER` or `--bookings`.

DailyDialog (Li et al. 2017): perplexity of models that read the history, of the same models with the last turn alone,
and of a unigram model, all on the same tokens; trained on the dialogues of one file, scored on those of another, which
also select the best weights. Bookings: how often a generated turn names the right values, on the test dialogues.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.text.classify import Scored
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row
from regard.tasks.loading import load_run
from regard.tasks.respond.options import EvaluateReplies, Respond
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
MODELS = ("flat", "hierarchical")
TITLES = {"dailydialog": "DailyDialog", "bookings": "Bookings"}
# steps of a training; validations in it
STEPS = {"dailydialog": 2400, "bookings": 3200}
VALIDATIONS = 3
# tokens per batch of DailyDialog with the history and with the last turn: 213 batches per epoch with both, so that
# the same number of steps learns from the same number of replies
BATCH = {True: 2000, False: 684}
SIZES: dict[str, dict[str, Any]] = {
    # with one turn neither stages nor the dropout of turns change anything
    "dailydialog": {"vocabulary": 2000, "width": 64, "dropout": 0.2, "staged_epochs": 4, "history_dropout": 0.5},
    "bookings": {},
}
OF_MODEL: dict[tuple[str, str], dict[str, Any]] = {
    ("dailydialog", "flat"): {"layers": 2, "heads": 4, "positions": "alibi"},
    ("dailydialog", "hierarchical"): {"hidden": 96},
}
# with --output pointer-generator, for flat models of DailyDialog: with one turn all turns are within the window
OUTPUTS = ("softmax", "pointer-generator")
POINTER: dict[str, Any] = {"output": OUTPUTS[1], "turn_window": 1, "staged_epochs": 3}
POINTER_STEPS, POINTER_VALIDATIONS = 1200, 2
# with --continued: a training of these options, but with the last turn alone, is the common start of all others
CONTINUED: dict[str, Any] = {"staged_epochs": 0, "history_dropout": 0.0}
START_STEPS, START_VALIDATIONS = 2400, 3
CONTINUED_STEPS, CONTINUED_LEARNING = 440, {"lr": 1e-3, "warmup": 20}
LEARNING: dict[str, dict[str, Any]] = {"dailydialog": {"lr": 2e-3, "warmup": 50}, "bookings": {}}
SAID = {
    "dailydialog": (
        "Perplexity per token of the replies, the ends of turns included, on the same tokens in all rows; replies by "
        "greedy search. The best weights are chosen on the dialogues that are scored, in all rows alike.\n"
    ),
    "bookings": (
        "Values: the share of generated turns of the system that name all values of the state that the right turn "
        "names, and no other; of the turns whose values follow from the dialogue, which sum up the wishes.\n"
    ),
}


def score(
    name: str, task: Respond, training: TrainingConfig, run: Path, say: Say, init_from: Path | None = None
) -> Scored:
    """Trains to the end of `training`, with the weights of `init_from` to start with, and evaluates."""
    train(name, task, training, run, say, init_from)
    loaded = load_run(run, device="cpu")
    respond = task.load()
    evaluation = respond.evaluate(loaded.predictor, run, EvaluateReplies(), lambda done, count: None)
    if task.dataset == "files" and task.turns > 1:
        # the same weights without the history
        replies = [reply.with_turns(1) for reply in respond.prepare(run, False).valid]
        last = float(np.exp(np.concatenate(loaded.predictor.token_nlls(replies)).mean()))
        evaluation = replace(evaluation, facts={**evaluation.facts, "last_turn": last})
    spent = Spent.of(run)
    scored = Scored(task.seed, evaluation, loaded.step, None if spent is None else spent.seconds)
    say(f"{name}: {scored.json()}")
    return scored


def _row(what: str, values: Sequence[float], unit: str, found: Sequence[Scored], how: str, bound: Bound | None) -> Row:
    cpu = statistics.mean(each.cpu or 0.0 for each in found)
    how += f", {len(found)} seed{'s' * (len(found) != 1)}"
    return Row(what, statistics.mean(values), unit, bound, how, cpu, beside=f"{min(values):.2f} to {max(values):.2f}")


def dailydialog_rows(
    found: Mapping[tuple[str, int], Sequence[Scored]], how: Mapping[tuple[str, int], str]
) -> list[Row]:
    """Per model: the perplexity with the history, which must be below both others, with the last turn, and variety."""
    rows = []
    for model in dict.fromkeys(model for model, _ in found):
        most = max(turns for name, turns in found if name == model)
        both = {turns: found[model, turns] for turns in (most, 1)}
        perplexities = {t: [each.evaluation.scores["perplexity"] for each in some] for t, some in both.items()}
        unigram = [each.evaluation.facts["baseline"]["unigram"] for each in both[most]]
        least = min(statistics.mean(perplexities[1]), statistics.mean(unigram))
        unit = f"on {both[most][0].evaluation.facts['tokens']:,} tokens"
        rows += [
            _row(
                f"{model}, perplexity with {most} turns",
                perplexities[most],
                unit,
                both[most],
                how[model, most],
                Bound("most", round(least, 2)),
            ),
            _row(f"{model}, perplexity with the last turn", perplexities[1], unit, both[1], how[model, 1], None),
            _row(
                f"{model}, trained with {most} turns and given the last alone",
                [each.evaluation.facts["last_turn"] for each in both[most]],
                unit,
                both[most],
                how[model, most],
                None,
            ),
            _row("unigram model, perplexity", unigram, unit, both[most], "counts of the training replies", None),
        ]
        for score_name in ("distinct-1", "distinct-2", "most common"):
            values = [each.evaluation.scores[score_name] for each in both[most]]
            count = both[most][0].evaluation.count
            rows.append(
                _row(f"{model}, {score_name}", values, f"% in {count:,} replies", both[most], how[model, most], None)
            )
    return rows


def bookings_rows(found: Mapping[tuple[str, int], Sequence[Scored]], how: Mapping[tuple[str, int], str]) -> list[Row]:
    """Per model: the values that replies name, the perplexity, and that of the unigram model."""
    rows = []
    for (model, turns), some in found.items():
        settings = how[model, turns]
        values = [each.evaluation.scores["values"] for each in some]
        bound = Bound("least", 90.0) if model == MODELS[0] else None
        rows.append(_row(f"{model}, values named", values, "% of the turns that sum up", some, settings, bound))
        perplexity = [each.evaluation.scores["perplexity"] for each in some]
        unigram = statistics.mean(each.evaluation.facts["baseline"]["unigram"] for each in some)
        rows.append(_row(f"{model}, perplexity", perplexity, f"(unigram {unigram:.1f})", some, settings, None))
    return rows


ROWS = {"dailydialog": dailydialog_rows, "bookings": bookings_rows}


def run(
    name: str,
    tasks: Mapping[tuple[str, int], Sequence[Respond]],
    trainings: Mapping[tuple[str, int], TrainingConfig],
    runs: Path,
    results: Path,
    say: Say,
    starts: Sequence[Respond] = (),
    start_training: TrainingConfig | None = None,
) -> Path:
    """`starts` are the trainings that those of each seed continue."""
    found: dict[tuple[str, int], list[Scored]] = {key: [] for key in tasks}
    # all rows of a seed before the next seed
    for number in range(len(next(iter(tasks.values())))):
        start = None
        if starts:
            assert start_training is not None
            start = runs / f"{name}-start-{starts[number].seed}"
            train(start.name, starts[number], start_training, start, say)
        for (model, turns), some in tasks.items():
            label = f"{name}-{model}-{turns}-{some[number].seed}{'-continued' * bool(starts)}"
            found[model, turns].append(score(label, some[number], trainings[model, turns], runs / label, say, start))
    counts = {each.evaluation.facts["tokens"] for some in found.values() for each in some if name == "dailydialog"}
    if len(counts) > 1:
        raise ValueError(f"the rows score {sorted(counts)} tokens, so their perplexities cannot be compared")
    how = {key: f"{training.steps:,} steps, {training.threads} thread" for key, training in trainings.items()}
    if start_training is not None:
        how = {key: f"{start_training.steps:,} steps with the last turn, then {each}" for key, each in how.items()}
    rows = ROWS[name](found, how)
    for row in rows:
        say(" | ".join(row.cells()))
    # the files without their paths
    settings = {
        f"{model}, {turns} turns": {
            "task": {**tasks[model, turns][0].to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name},
            "training": asdict(trainings[model, turns]),
            "seeds": [each.json() for each in some],
        }
        for (model, turns), some in found.items()
    }
    option = {"dailydialog": "--dailydialog FOLDER", "bookings": "--bookings"}[name]
    seeds = [task.seed for task in next(iter(tasks.values()))]
    command = f"python -m benchmarks.text.respond {option} --seeds {len(seeds)}"
    command += f" --first-seed {seeds[0]}" if seeds[0] else ""
    models = list(dict.fromkeys(model for model, _ in tasks))
    command += " --models " + " ".join(models)
    # the files of the default are named by the data alone
    suffix = "" if MODELS[0] in models else f"-{'-'.join(models)}"
    output = getattr(next(iter(tasks.values()))[0].model, "output", OUTPUTS[0])
    if output != OUTPUTS[0]:
        command, suffix = f"{command} --output {output}", f"{suffix}-{output}"
    if start_training is not None:
        command, suffix = f"{command} --continued", f"{suffix}-continued"
        start_task = {**starts[0].to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name}
        settings["common start"] = {"task": start_task, "training": asdict(start_training)}
    title = f"{TITLES[name]}, replies"
    return Result(
        f"respond-{name}{suffix}", title, SAID[name], rows, commands=[command], settings=settings, about=About.now()
    ).write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.respond", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "--dailydialog", type=Path, metavar="FOLDER", help="with dialogues_text_En.txt.gz and en_dev_human.txt.gz"
    )
    chosen.add_argument("--bookings", action="store_true", help="the embedded dialogues")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS, help="(both)")
    parser.add_argument("--turns", type=int, default=5, help="the history of DailyDialog (%(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="number of trainings per row (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="the seed of the first of them (%(default)s)")
    parser.add_argument("--steps", type=int, help="steps per training, in place of those of each row")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    parser.add_argument("--output", default=OUTPUTS[0], choices=OUTPUTS, help="of flat models (%(default)s)")
    parser.add_argument(
        "--continued", action="store_true", help="continue a common start with the last turn, with --output"
    )
    given = parser.parse_args(arguments)
    copies = given.output == OUTPUTS[1]
    if copies and (given.bookings or given.models != ["flat"]):
        parser.error(f"--output {given.output} is for --dailydialog and --models flat; leave out the others")
    if given.continued and not copies:
        parser.error(f"--continued is for --output {OUTPUTS[1]}; leave it out")
    name = "bookings" if given.bookings else "dailydialog"
    data: dict[str, Any] = {"data": "bookings"}
    if name == "dailydialog":
        folder = given.dailydialog
        data = {"train": folder / "dialogues_text_En.txt.gz", "valid": folder / "en_dev_human.txt.gz"}
    tasks: dict[tuple[str, int], list[Respond]] = {}
    trainings, seeds = {}, range(given.first_seed, given.first_seed + given.seeds)
    try:
        for model in given.models:
            for turns in (given.turns, 1) if name == "dailydialog" else (0,):
                chosen_options = {**data, **SIZES[name], **OF_MODEL.get((name, model), {}), "model": model}
                chosen_options |= {"turns": turns, "batch": BATCH[turns > 1]} if turns else {}
                chosen_options |= options
                chosen_options |= POINTER if copies else {}
                chosen_options |= CONTINUED if given.continued else {}
                tasks[model, turns] = [Respond.of(**chosen_options, seed=seed) for seed in seeds]
                steps = given.steps or (POINTER_STEPS if copies else STEPS[name])
                validations = POINTER_VALIDATIONS if copies else VALIDATIONS
                if given.continued:
                    steps, validations = given.steps or CONTINUED_STEPS, 1
                ends = {"steps": steps, "threads": given.threads, "validate_every": max(steps // validations, 1)}
                task = tasks[model, turns][0]
                proposed = Respond.training_defaults(task.model, task.dataset)
                learning = CONTINUED_LEARNING if given.continued else LEARNING[name]
                trainings[model, turns] = TrainingConfig(**{**proposed, **learning, **ends})
        starts, start_training = [], None
        if given.continued:
            chosen_options = {**data, **SIZES[name], **OF_MODEL[name, "flat"], **POINTER, "model": "flat"}
            chosen_options |= {"turns": 1, "batch": BATCH[False], **options}
            starts = [Respond.of(**chosen_options, seed=seed) for seed in seeds]
            every = START_STEPS // START_VALIDATIONS
            ends = {"steps": START_STEPS, "threads": given.threads, "validate_every": every}
            start_training = TrainingConfig(**{**proposed, **LEARNING[name], **ends})
        written = run(
            name,
            tasks,
            trainings,
            given.runs,
            results,
            lambda text: print(text, flush=True),
            starts,
            start_training,
        )
        print("written:", written)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
