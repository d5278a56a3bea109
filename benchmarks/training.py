"""Trains any task for a benchmark: resumes a run that was stopped, and counts its CPU time over all processes.

Every process appends lines to its own file, RUN/cpu/N.jsonl, so that a kill loses only the time after the last line.
Steps after the last checkpoint are repeated by the next process and count twice, as they should.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from regard.training.config import TrainingConfig
from regard.training.events import Event, Saved, Started, StepLogged, Stopped, Validated, Warned
from regard.training.fit import fit
from regard.training.protocol import TrainableConfig
from regard.training.run_folder import RECORD

Say = Callable[[str], None]


class Unfinished(RuntimeError):
    """A training was interrupted before its end."""


@dataclass(frozen=True)
class Goal:
    """A training ends at the first validation that reaches a score, and at most after these seconds of CPU time."""

    score: str
    value: float
    seconds: float
    is_least: bool = True

    def ends(self, event: Event, seconds: float) -> bool:
        if isinstance(event, Validated) and self.is_reached(event.score.values[self.score]):
            return True
        return isinstance(event, Validated | StepLogged) and seconds > self.seconds and event.step > 0

    def is_reached(self, value: float) -> bool:
        return value >= self.value if self.is_least else value <= self.value


def train(
    name: str,
    config: TrainableConfig,
    training: TrainingConfig,
    run: Path,
    say: Say,
    init_from: Path | None = None,
    goal: Goal | None = None,
) -> None:
    """Starts or resumes the run; `init_from` is the run whose best weights a new one starts with."""
    meter = Meter(run)
    validated = False
    try:
        resume = (run / RECORD).exists()
        for event in fit(config, run, training, resume, None if resume else init_from):
            seconds = meter.note(event.step) if isinstance(event, StepLogged | Validated | Saved) else 0.0
            validated |= isinstance(event, Validated)
            if (text := _event_text(event)) is not None:
                say(f"{name}: {text}" + (f", {seconds:,.0f} s of CPU" if isinstance(event, StepLogged) else ""))
            if isinstance(event, Stopped) and event.reason == "interrupted":
                raise Unfinished(event.text)
            if goal is not None and validated and goal.ends(event, seconds):
                break
    finally:
        meter.close()


def _event_text(event: Event) -> str | None:
    match event:
        case Started():
            return f"{event.parameters:,} parameters, {event.threads} threads, from step {event.step} of {event.steps}"
        case StepLogged():
            rate = f"{event.tokens_per_second:,.0f} {event.unit}/s"
            return f"step {event.step} of {event.steps}, loss {event.loss:.3f}, {rate}"
        case Validated():
            return ", ".join(f"{name} {value:.2f}" for name, value in event.score.values.items())
        case Warned() | Stopped():
            return event.text
        case _:
            return None


class Meter:
    """Counts the CPU time of this process from now on; the first note creates the file."""

    def __init__(self, run: Path) -> None:
        self.run, self.file = run, None
        self.start = time.process_time()

    file: IO[str] | None

    def note(self, step: int) -> float:
        """Writes the CPU seconds until now, and returns them."""
        if self.file is None:
            folder = self.run / "cpu"
            folder.mkdir(exist_ok=True)
            self.file = (folder / f"{len(list(folder.glob('*.jsonl')))}.jsonl").open("x", encoding="utf-8")
        seconds = time.process_time() - self.start
        self.file.write(json.dumps({"step": step, "cpu": round(seconds, 3)}) + "\n")
        self.file.flush()
        return seconds

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def cpu_seconds(run: Path) -> float:
    """The CPU time of all processes that trained a run."""
    return max(cpu_by_step(run).values(), default=0.0)


def cpu_by_step(run: Path) -> dict[int, float]:
    """The CPU seconds until each step."""
    total, steps = 0.0, dict[int, float]()
    for path in sorted((run / "cpu").glob("*.jsonl"), key=lambda path: int(path.stem)):
        # a kill may leave half a line
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        steps.update((line["step"], total + line["cpu"]) for line in lines)
        total += lines[-1]["cpu"] if lines else 0.0
    return dict(sorted(steps.items()))
