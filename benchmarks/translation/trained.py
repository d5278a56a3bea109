"""Trains a case, unless it is trained, and evaluates it: RUN/result.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import measured
from benchmarks.measured import About
from benchmarks.spent import Spent
from benchmarks.training import Say, train
from benchmarks.translation.cases import UNITS, Case
from regard.decoding.search import Beam, Greedy, Search
from regard.metrics.text import SCORES
from regard.tasks.translate.task import evaluate, read
from regard.training import checkpoint
from regard.training.events import Started
from regard.training.run_folder import BEST, LAST, METRICS, RECORD, RunRecord

SEARCHES: dict[str, Search] = {"greedy": Greedy(), "beam 5": Beam(5)}
RESULT = "result.json"
# translations that are kept as examples
_SAMPLES = 5


@dataclass(frozen=True)
class Result:
    """The result of a training."""

    case: str
    about: About
    trained_with: Mapping[str, str]  # the versions that trained it
    threads: int
    parameters: int
    steps: int
    best_step: int  # the step of the evaluated weights
    cpu_seconds: float | None  # of training, validations included; None if not counted
    wall_seconds: float
    lines: int  # evaluated pairs
    scores: Mapping[str, Mapping[str, float]]  # by search, by name
    samples: list[dict[str, str]]

    def value(self, name: str, search: str) -> float | None:
        """A score, or for "cpu" the CPU minutes."""
        if name == "cpu":
            return None if self.cpu_seconds is None else self.cpu_seconds / 60
        return self.scores[search].get(name)

    def reached(self, case: Case) -> str:
        """The values of the goals, or all scores if there is no goal."""
        names = [*case.goals] or [*self.scores[case.search]]
        said = []
        for name in names:
            value, (unit, digits) = self.value(name, case.search), UNITS[name]
            said.append(f"{unit} not counted" if value is None else f"{value:.{digits}f} {unit}")
        return ", ".join(said)

    def verdict(self, case: Case) -> str:
        if not case.goals:
            return ""
        values = {name: self.value(name, case.search) for name in case.goals}
        if any(value is not None and not case.goals[name].holds(value) for name, value in values.items()):
            return "falls short"
        return "not counted" if None in values.values() else "reached"

    def write(self, run: Path) -> Path:
        return measured.write(run / RESULT, self)

    @staticmethod
    def read(run: Path) -> "Result | None":
        """The result of a run, with its current CPU time; None if there is none."""
        told = measured.read(run / RESULT)
        if told is None:
            return None
        spent = Spent.of(run)
        return replace(Result(**told), cpu_seconds=None if spent is None else spent.seconds)


def result(name: str, case: Case, run: Path, say: Say) -> Result:
    """Trains and evaluates the case; a finished training or evaluation is not repeated."""
    if _current(case, run):
        found = Result.read(run)
        if found is not None:
            return found
    before = RunRecord.read(run).versions if (run / RECORD).exists() else None
    started, stepped = train(name, case.task, case.training, run, say)
    versions = RunRecord.read(run).versions if stepped or before is None else before
    say(f"{name}: evaluating")
    found = judge(name, case, run, started, versions)
    found.write(run)
    return found


def _current(case: Case, run: Path) -> bool:
    """Whether the evaluated run has the options of this case."""
    if not ((run / RESULT).exists() and (run / RECORD).exists()):
        return False
    record = RunRecord.read(run)
    same_task = record.task == case.task.name and record.changed_option(case.task) is None
    return same_task and record.training == case.training


def judge(name: str, case: Case, run: Path, started: Started, versions: Mapping[str, str]) -> Result:
    """Evaluates the best weights on the test pairs, with every search."""
    translator = case.task.load().predictor(run)
    facts = checkpoint.load(translator.model, run / BEST)
    last = checkpoint.read(run / LAST).facts
    pairs = read(case.task).test
    names = [score for score in facts["score"] if score in SCORES]
    scores: dict[str, Mapping[str, float]] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for label, search in SEARCHES.items():
            scores[label], translations = evaluate(translator, pairs, search, names)
    finally:
        torch.set_num_threads(threads)
    spent = Spent.of(run)
    return Result(
        case=name,
        about=About.now(),
        trained_with=dict(versions),
        threads=started.threads,
        parameters=started.parameters,
        steps=last["step"],
        best_step=facts["step"],
        cpu_seconds=None if spent is None else spent.seconds,
        wall_seconds=last["progress"]["elapsed"],
        lines=len(pairs),
        scores=scores,
        samples=[
            {"source": pairs.source[n], "said": translations[n], "right": pairs.target[n]}
            for n in range(min(_SAMPLES, len(pairs)))
        ],
    )


def course(run: Path) -> dict[str, list[tuple[float, float]]]:
    """The curves of metrics.jsonl against CPU minutes: the training loss ("learnt") and every validation score.

    If only the sum of CPU seconds is known, it is distributed over the steps in proportion to wall time.
    """
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()
    ]
    spent = Spent.of(run)
    if spent is None:
        return {}
    at = spent.steps or _spread(lines, spent.seconds)
    found: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        if line["step"] not in at or line["kind"] == "average":
            continue
        shown = {"learnt": "nll"} if line["kind"] == "step" else {name: name for name in (*SCORES, "nll")}
        for name, key in shown.items():
            if isinstance(line.get(key), int | float):
                found.setdefault(name, []).append((at[line["step"]] / 60, line[key]))
    return found


def _spread(lines: list[dict[str, Any]], seconds: float) -> dict[int, float]:
    clock: dict[int, float] = {}
    for line in lines:
        if "elapsed" in line:
            clock[line["step"]] = line["elapsed"]
        elif line["step"] not in clock:
            # between two lines of progress, such as a validation
            clock[line["step"]] = max(clock.values(), default=0.0)
    whole = max(clock.values(), default=0.0)
    return {step: elapsed * seconds / whole for step, elapsed in clock.items()} if whole else {}
