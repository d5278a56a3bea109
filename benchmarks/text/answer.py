"""Memory networks: `python -m benchmarks.text.answer --babi TRAIN --test TEST` or `--stories` [--epochs N].

bAbI: one network per task for all files of TRAIN (qa1_..._train.txt.gz), restarts chosen on a tenth of the training
stories, scored on the files of TEST. `--tasks 1 6` trains these alone, and `--scrambled SEED` replaces every word by a
random string, the same everywhere. Stories: the embedded world, scored on its test questions. A training that is
stopped goes on when the same command is given again.
"""

import argparse
import random
import re
import string
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import ROOT, Result, Row, Table
from regard.data.questions.babi import match_files, read_babi, task_files
from regard.data.text.pairs import read_lines
from regard.inference.evaluation import Evaluation
from regard.tasks.answer.data import EncodedQuestions, read
from regard.tasks.answer.options import Answer, EvaluateAnswers
from regard.tasks.answer.predictor import AnswerPredictor
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig

RESULTS = ROOT / "benchmarks" / "results" / "text"
EPOCHS = 30.0
TITLES = {"babi": "bAbI", "babi-words": "bAbI, words", "babi-scrambled": "bAbI, scrambled words", "stories": "Stories"}
PASSED = 5.0
_WORD = re.compile(r"[^\W\d]\w*")


def select_tasks(files: dict[str, Path], numbers: Sequence[int]) -> dict[str, Path]:
    """The files of tasks with these numbers; all of them if none is given."""
    return {
        name: path for name, path in files.items() if not numbers or name.split("_")[0] in {f"qa{n}" for n in numbers}
    }


def scramble(files: dict[str, Path], part: str, seed: int, folder: Path) -> None:
    """Writes the files with every word replaced by a random string; the same word by the same string in every file."""
    folder.mkdir(parents=True, exist_ok=True)

    def replaced(text: str) -> str:
        return _WORD.sub(lambda match: random_word(match[0].lower(), seed), text)

    for name, path in files.items():
        lines = []
        for line in read_lines(path):
            number, _, rest = line.partition(" ")
            cells = rest.split("\t")
            cells[:2] = [replaced(cell) for cell in cells[:2]]
            lines.append(f"{number} " + "\t".join(cells))
        (folder / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def random_word(word: str, seed: int) -> str:
    """A string of nine letters that depends on the word and the seed alone."""
    return "".join(random.Random(f"{seed} {word}").choices(string.ascii_lowercase, k=9))


def restart_errors(predictor: AnswerPredictor, task: Answer) -> dict[str, list[float]]:
    """The test error of every restart of every task, in percent."""
    if task.dataset == "files":
        paths = match_files(predictor.facts.tasks, task.test, "test")
        questions = {name: read_babi(path, task.max_length) for name, path in paths.items()}
    else:
        questions = {name: list(each.test) for name, each in read(task).items()}
    predictor.model.eval()
    errors = {}
    for name, every in questions.items():
        number = predictor.facts.network(name)
        encoded = EncodedQuestions(every, predictor.encoders[number], task.memory)
        errors[name] = predictor.model.restart_scores(number, encoded)[0].tolist()
    return errors


def rows_of(name: str, evaluation: Evaluation, cpu: float | None, how: str) -> list[Row]:
    tasks = evaluation.facts["tasks"]
    passed = float(sum(each["error"] <= PASSED for each in tasks))
    whole = name == "babi"
    baseline = sum(each["bag_of_words"] for each in tasks) / len(tasks)
    named = sum(each["last_named"] for each in tasks) / len(tasks)
    beside = f"bag of words {baseline:.1f}, last answer named {named:.1f}"
    most = Bound("most", 10) if whole else Bound("most", baseline - 20) if name == "stories" else None
    rows = [
        Row(
            f"{TITLES[name]}, tasks with at most 5 % error",
            passed,
            f"of {len(tasks)}",
            Bound("least", 13) if whole else None,
            how,
            cpu,
            0,
        ),
        Row(f"{TITLES[name]}, mean error", evaluation.scores["error"], "%", most, how, cpu, 2, beside),
    ]
    for each in tasks:
        if each["name"].split("_")[0] in ("qa1", "qa2") and each["support"] is not None:
            bound = Bound("least", 90)
            what = f"{each['name']}, largest weight on a line that supports the answer"
            rows.append(Row(what, each["support"], f"% of {each['questions']:,} questions", bound, how))
    return rows


def table_of(evaluation: Evaluation, restarts: dict[str, list[float]]) -> Table:
    headings = ("task", "error", "every restart", "bag of words", "last answer named", "most frequent", "support")
    rows = [
        [
            each["name"],
            f"{each['error']:.1f}",
            ", ".join(f"{error:.1f}" for error in restarts[each["name"]]),
            *(f"{each[key]:.1f}" for key in ("bag_of_words", "last_named", "most_frequent")),
            "" if each["support"] is None else f"{each['support']:.1f}",
        ]
        for each in evaluation.facts["tasks"]
    ]
    said = "Errors in percent. Validation chose the restart whose error is in the second column."
    return Table("Tasks", headings, rows, said)


def run(name: str, task: Answer, training: TrainingConfig, runs: Path, results: Path, command: str, say: Say) -> Path:
    folder = runs / name
    train(name, task, training, folder, say)
    loaded = load_run(folder, device="cpu")
    assert isinstance(loaded.predictor, AnswerPredictor)
    evaluation = task.load().evaluate(loaded.predictor, folder, EvaluateAnswers(), lambda done, count: None)
    spent = Spent.of(folder)
    how = f"{training.epochs:g} epochs, {task.restarts} restarts, {training.threads} thread, seed {task.seed}"
    rows = rows_of(name, evaluation, None if spent is None else spent.seconds, how)
    table = table_of(evaluation, restart_errors(loaded.predictor, task))
    for row in rows:
        say(" | ".join(row.cells()))
    for cells in table.rows:
        say(" | ".join(cells))
    # the files without their paths
    settings = {
        "task": {**task.to_json(), **dict.fromkeys(("train", "valid", "test")), "data": name},
        "training": asdict(training),
        "step": loaded.step,
        "tasks": evaluation.facts["tasks"],
    }
    said = "Error on the test questions; the validation stories, a tenth of those to train on, choose the restart.\n"
    result = Result(name, TITLES[name], said, rows, [table], commands=[command], settings=settings, about=About.now())
    return result.write(results)


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS, **options: Any) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.answer", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--babi", type=Path, metavar="FOLDER", help="files of tasks to train on")
    chosen.add_argument("--stories", action="store_true", help="the embedded world")
    parser.add_argument("--test", type=Path, metavar="FOLDER", help="files of tasks to test on; as --babi if left out")
    parser.add_argument("--tasks", type=int, nargs="+", default=[], help="numbers of tasks; all if left out")
    parser.add_argument("--scrambled", type=int, metavar="SEED", help="replace words by random strings of this seed")
    parser.add_argument("--epochs", type=float, default=EPOCHS, help="passes over the data (%(default)s)")
    parser.add_argument("--restarts", type=int, default=3, help="networks per task (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the training (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the processor (%(default)s)")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="for the runs (%(default)s)")
    given = parser.parse_args(arguments)
    name = "stories" if given.stories else "babi"
    command = f"python -m benchmarks.text.answer --{name}" + ("" if given.stories else " TRAIN --test TEST")
    try:
        data: dict[str, Any] = {"data": "stories"}
        if not given.stories:
            train_files = select_tasks(task_files([given.babi], "train"), given.tasks)
            every = match_files(list(train_files), [given.test or given.babi], "test")
            name += "-words" if given.tasks and given.scrambled is None else ""
            if given.scrambled is not None:
                name += "-scrambled"
                folder = given.runs / f"words-{given.scrambled}"
                scramble(train_files, "train", given.scrambled, folder)
                scramble(every, "test", given.scrambled, folder)
                train_files, every = task_files([folder], "train"), task_files([folder], "test")
            data = {"train": tuple(train_files.values()), "test": tuple(every.values())}
        for option in ("tasks", "scrambled"):
            if (value := getattr(given, option)) not in (None, []):
                command += f" --{option} " + (" ".join(map(str, value)) if isinstance(value, list) else str(value))
        command += f" --epochs {given.epochs:g} --restarts {given.restarts} --seed {given.seed}"
        command += f" --threads {given.threads}"
        training = TrainingConfig(**{**Answer.training, "epochs": given.epochs, "threads": given.threads})
        task = Answer.of(**{**data, "restarts": given.restarts, "seed": given.seed, **options})
        print("written:", run(name, task, training, given.runs, results, command, lambda text: print(text, flush=True)))
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
