"""A case trained, or found trained, and judged: RUN/result.json."""

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
# translations that are kept to be looked at
_SAMPLES = 5


@dataclass(frozen=True)
class Result:
    """What a training reached."""

    case: str
    about: About
    trained_with: Mapping[str, str]  # the versions that trained it
    threads: int
    parameters: int
    steps: int
    best_step: int  # whose weights are judged
    cpu_seconds: float | None  # of training, validations included; None where nobody counted
    wall_seconds: float
    lines: int  # that it was judged on
    scores: Mapping[str, Mapping[str, float]]  # by search, by name
    samples: list[dict[str, str]]

    def value(self, name: str, search: str) -> float | None:
        """A score, or "cpu", the minutes."""
        if name == "cpu":
            return None if self.cpu_seconds is None else self.cpu_seconds / 60
        return self.scores[search].get(name)

    def reached(self, case: Case) -> str:
        """The values of the goals, or all scores where there is no goal."""
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
        """The result of a run, with the time as it is counted now; None before there is one."""
        told = measured.read(run / RESULT)
        if told is None:
            return None
        spent = Spent.of(run)
        return replace(Result(**told), cpu_seconds=None if spent is None else spent.seconds)


def result(name: str, case: Case, run: Path, say: Say) -> Result:
    """Trained as far as the case goes and judged once; what is done already is not done again."""
    if _current(case, run):
        found = Result.read(run)
        if found is not None:
            return found
    before = RunRecord.read(run).versions if (run / RECORD).exists() else None
    started, stepped = train(name, case.task, case.training, run, say)
    versions = RunRecord.read(run).versions if stepped or before is None else before
    say(f"{name}: judging")
    found = judge(name, case, run, started, versions)
    found.write(run)
    return found


def _current(case: Case, run: Path) -> bool:
    """Is what was judged a run of this very case?"""
    if not ((run / RESULT).exists() and (run / RECORD).exists()):
        return False
    record, wanted = RunRecord.read(run), RunRecord.of(case.task, case.training)
    return (record.kind, record.task, record.training) == (wanted.kind, wanted.task, wanted.training)


def judge(name: str, case: Case, run: Path, started: Started, versions: Mapping[str, str]) -> Result:
    """The best weights on the pairs to test, searched in every way."""
    interpreter = case.task.interpreter(run)
    facts = checkpoint.load(interpreter.model, run / BEST)
    last = checkpoint.read(run / LAST).facts
    pairs = read(case.task).test
    names = [score for score in facts["score"] if score in SCORES]
    scores: dict[str, Mapping[str, float]] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for label, search in SEARCHES.items():
            scores[label], said = evaluate(interpreter, pairs, search, names)
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
            {"source": pairs.source[n], "said": said[n], "right": pairs.target[n]}
            for n in range(min(_SAMPLES, len(pairs)))
        ],
    )


def course(run: Path) -> dict[str, list[tuple[float, float]]]:
    """What metrics.jsonl tells against CPU minutes: the loss of training ("learnt") and every score of a validation.

    Where only the sum of CPU seconds is known, they are spread over the steps as the time on the clock was.
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
            # between two lines of progress, as a validation may be
            clock[line["step"]] = max(clock.values(), default=0.0)
    whole = max(clock.values(), default=0.0)
    return {step: elapsed * seconds / whole for step, elapsed in clock.items()} if whole else {}
