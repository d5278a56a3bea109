"""bAbI: the files of some tasks, the same with scrambled words, and the test error of every restart."""

import random
import re
import string
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.runner import TrainedRun
from regard.data.questions.babi import match_files, read_babi, task_files
from regard.data.text.pairs import read_lines
from regard.tasks.answer.data import EncodedQuestions, read
from regard.tasks.answer.options import Answer

_WORD = re.compile(r"[^\W\d]\w*")


def config(train: Path, test: Path, tasks: Sequence[int] = (), scrambled: int | None = None, **options: Any) -> Answer:
    """The task on the files of some tasks; `scrambled` is the seed of random words in place of all words."""
    names = {f"qa{number}" for number in tasks}
    files = task_files([train], "train")
    files = {name: path for name, path in files.items() if name.split("_")[0] in names or not names}
    tests: Mapping[str, Path] = match_files(list(files), [test], "test")
    if scrambled is not None:
        folder = Path(tempfile.gettempdir()) / f"babi-words-{scrambled}"
        files, tests = (scramble(each, part, scrambled, folder) for each, part in ((files, "train"), (tests, "test")))
    return Answer.of(train=tuple(files.values()), test=tuple(tests.values()), **options)


def scramble(files: Mapping[str, Path], part: str, seed: int, folder: Path) -> dict[str, Path]:
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
    return {name: folder / f"{name}_{part}.txt" for name in files}


def random_word(word: str, seed: int) -> str:
    """A string of nine letters that depends on the word and the seed alone."""
    return "".join(random.Random(f"{seed} {word}").choices(string.ascii_lowercase, k=9))


def values(run: TrainedRun) -> dict[str, Any]:
    """The scores of every task, with the test error of every restart, and the means of the baselines."""
    tasks = [dict(each) for each in run.values["tasks"]]
    restarts = restart_errors(run)
    for task in tasks:
        task["restarts"] = [f"{error:.1f}" for error in restarts[task["name"]]]
    means = {name: sum(task[name] for task in tasks) / len(tasks) for name in ("bag_of_words", "last_named")}
    supports = {task["name"].split("_")[0]: task["support"] for task in tasks}
    return {"tasks": tasks, "num tasks": len(tasks), "supports": supports, **means}


def restart_errors(run: TrainedRun) -> dict[str, list[float]]:
    """The test error of every restart of every task, in percent."""
    predictor, config = run.predictor, run.config
    if config.dataset == "files":
        paths = match_files(predictor.facts.tasks, config.test, "test")
        questions = {name: read_babi(path, config.max_length) for name, path in paths.items()}
    else:
        questions = {name: list(each.test) for name, each in read(config).items()}
    predictor.model.eval()
    errors = {}
    for name, every in questions.items():
        number = predictor.facts.network(name)
        encoded = EncodedQuestions(every, predictor.encoders[number], config.memory)
        errors[name] = predictor.model.restart_scores(number, encoded)[0].tolist()
    return errors
