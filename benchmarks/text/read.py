"""Readers: `python -m benchmarks.text.read --timetables [--seeds 3] [--steps N]` or `--xquad FILE`.

Timetables: the embedded tables, scored on the questions about 500 test tables whose trains and towns never met in
training, for several seeds, which decide data and weights, beside two baselines. XQuAD: 1,190 questions in the layout
of SQuAD, read and compared with the file: how many answers are not the characters at their offset, and how many begin
or end inside a word.
"""

import argparse
import gzip
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row
from regard.data.questions.squad import read_questions
from regard.tasks.loading import load_run
from regard.tasks.read.data import split_questions
from regard.tasks.read.options import ReadConfig
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
LEAST, LEAST_MARGIN = 95.0, 20.0


def timetables(seeds: int, training: TrainingConfig, runs: Path, say: Say, **options: Any) -> Result:
    """Trains one reader per seed, and scores each."""
    rows, scores, baselines, cpu, steps = [], [], [], [], {}
    how = f"{training.steps:,} steps, {training.threads} thread{'s' * (training.threads != 1)}"
    for seed in range(seeds):
        task, run = ReadConfig.of(data="timetables", seed=seed, **options), runs / f"timetables-{seed}"
        train(f"timetables, seed {seed}", task, training, run, say)
        loaded = load_run(run, device="cpu")
        found = task.load().evaluate(loaded.predictor, run, task.Evaluate(), lambda done, count: None)
        spent = Spent.of(run)
        low, high = found.intervals["exact match"]
        unit = f"% of {found.count:,} questions"
        beside = f"95 % interval {low:.2f} to {high:.2f}, f1 {found.scores['f1']:.2f}"
        seconds = None if spent is None else spent.seconds
        rows.append(
            Row(
                f"timetables, seed {seed}, exact match",
                found.scores["exact match"],
                unit,
                None,
                how,
                seconds,
                2,
                beside,
            )
        )
        for note in found.notes:
            say(f"timetables, seed {seed}: {note}")
        scores.append(found.scores["exact match"])
        baselines.append({name: each["exact match"] for name, each in found.facts["baselines"].items()})
        cpu.append(seconds or 0.0)
        steps[seed] = loaded.step
    spread = f"{min(scores):.2f} to {max(scores):.2f} over {seeds} seeds"
    mean = statistics.mean(scores)
    rows.insert(
        0, Row("timetables, mean exact match", mean, "%", Bound("least", LEAST), how, statistics.mean(cpu), 2, spread)
    )
    for name in baselines[0]:
        each = [scored[name] for scored in baselines]
        beside = f"{min(each):.2f} to {max(each):.2f} over {seeds} seeds"
        rows.append(
            Row(f"timetables, {name}, exact match", statistics.mean(each), "%", None, "no training", None, 2, beside)
        )
    margin = mean - max(statistics.mean(scored[name] for scored in baselines) for name in baselines[0])
    rows.append(Row("timetables, above the best baseline", margin, "points", Bound("least", LEAST_MARGIN), how))
    return Result(
        "timetables",
        "Timetables",
        "Questions that two keys decide, and follow-ups by history, about tables of unseen pairs of names.\n",
        rows,
        commands=[f"python -m benchmarks.text.read --timetables --seeds {seeds} --steps {training.steps}"],
        settings={"task": task.to_json(), "training": asdict(training), "best step by seed": steps},
        about=About.now(),
    )


def xquad(path: Path) -> Result:
    """Reads a file of SQuAD's layout, and compares it with its JSON."""
    content = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    given = {
        entry["id"]: (paragraph["context"], entry)
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    }
    found = read_questions(path)
    off = missing = 0
    for question in found.questions:
        context, entry = given[question.id]
        right = {(answer["text"], answer["answer_start"]) for answer in entry["answers"]}
        read = {(answer.text, answer.start) for answer in question.answers}
        missing += read != right or question.passage != context or question.question != entry["question"]
        off += sum(question.passage[answer.start : answer.end] != answer.text for answer in question.answers)
    worded = split_questions(found.questions, 0)
    off_words = sum(
        question.passage[slice(*each.passage.place(*each.span))] not in {answer.text for answer in question.answers}
        for question, each in zip(found.questions, worded, strict=True)
        if each.span is not None
    )
    unmet = sum(each.span is None for each in worded)
    rows = [
        Row("xquad, questions read", len(found), f"of {len(given):,}", Bound("least", len(given)), digits=0),
        Row("xquad, questions that differ from the file", missing, "", Bound("most", 0), digits=0),
        Row("xquad, answers off by a character", off, "", Bound("most", 0), digits=0),
        Row("xquad, answers of words off by a character", off_words, "", Bound("most", 0), digits=0),
        Row("xquad, answers that begin or end inside a word", unmet, f"of {len(found):,}", digits=0),
    ]
    said = "Questions in the layout of SQuAD, read and compared with the file.\n"
    command = "python -m benchmarks.text.read --xquad FILE"
    return Result("xquad", "XQuAD, English", said, rows, commands=[command], about=About.now())


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.read", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--timetables", action="store_true", help="the embedded timetables")
    chosen.add_argument("--xquad", type=Path, metavar="FILE", help="a file of XQuAD, or any in SQuAD's layout")
    parser.add_argument("--seeds", type=int, default=3, help="trainings, from seed 0 on (%(default)s)")
    parser.add_argument("--steps", type=int, default=ReadConfig.budgets["timetables"].steps, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        if given.xquad is not None:
            result = xquad(given.xquad)
        else:
            training = TrainingConfig(**{**ReadConfig.training, "steps": given.steps, "threads": given.threads})
            result = timetables(given.seeds, training, given.runs, say, **options)
        for row in result.rows:
            say(" | ".join(row.cells()))
        say(f"written: {result.write(results)}")
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
