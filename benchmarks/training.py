"""Trains any task for a benchmark: resumes a run that was stopped, and counts its CPU time."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.spent import Meter
from regard.training.config import TrainingConfig
from regard.training.events import Event, Saved, Started, StepLogged, Stopped, Validated, Warned
from regard.training.fit import fit
from regard.training.protocol import TrainableConfig
from regard.training.run_folder import RECORD

Say = Callable[[str], None]


class Unfinished(RuntimeError):
    """A training was interrupted before its end."""


def train(
    name: str, task: TrainableConfig, training: TrainingConfig, run: Path, say: Say, init_from: Path | None = None
) -> tuple[Started, bool]:
    """Starts or resumes the run; returns its first event, and whether it made a step.

    `init_from` is the run whose best weights a new one starts with.
    """
    meter = Meter(run)
    started: Started | None = None
    stepped = False
    try:
        resume = (run / RECORD).exists()
        for event in fit(task, run, training, resume, None if resume else init_from):
            if isinstance(event, Started):
                started = event
            elif isinstance(event, StepLogged | Validated | Saved):
                stepped = True
                seconds = meter.note(event.step)
            if (text := _event_text(event)) is not None:
                say(f"{name}: {text}" + (f", {seconds:,.0f} s of CPU" if isinstance(event, StepLogged) else ""))
            if isinstance(event, Stopped) and event.reason == "interrupted":
                raise Unfinished(event.text)
    finally:
        meter.close()
    assert started is not None
    return started, stepped


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
