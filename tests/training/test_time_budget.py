"""Trainings that end after minutes, on a clock that the test sets: validations, estimated steps, exact resumes."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.product import first
from tests.training.toy import Toy, ToyProblem, metrics, of, run, same

from regard.training import checkpoint, fit, time_budget
from regard.training.config import TrainingConfig
from regard.training.events import InterimReport, Saved, StepLogged, Validated
from regard.training.schedule import Plateau, StepEstimate, factor
from regard.training.state import TrainingState


class StepClock:
    """The module time; a loss takes one second, a validation `validation` seconds."""

    def __init__(self) -> None:
        self.now, self.validation = 100.0, 2.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    clock = StepClock()
    monkeypatch.setattr(fit, "time", clock)
    loss, validate = ToyProblem.loss, ToyProblem.validate

    def timed_loss(self: ToyProblem, *args: Any) -> Any:
        clock.now += 1.0
        return loss(self, *args)

    def timed_validation(self: ToyProblem, *args: Any) -> Any:
        clock.now += clock.validation
        return validate(self, *args)

    monkeypatch.setattr(ToyProblem, "loss", timed_loss)
    monkeypatch.setattr(ToyProblem, "validate", timed_validation)
    return clock


def progress(folder: Path) -> dict[str, Any]:
    return checkpoint.read(folder / "last.safetensors").facts["progress"]


def test_minutes_end_a_run(tmp_path: Path, clock: StepClock) -> None:
    events = run(tmp_path, minutes=0.5, log_every=5)
    assert events[-1].reason == "minutes"
    assert events[-1].text == f"0.5 minutes have passed, at step {events[-1].step}"
    assert 0 < events[-1].step <= 30
    assert events[0].steps is None
    assert of(Validated, events)[-1].step == events[-1].step
    assert of(StepLogged, events)[0].remaining == 60 * 0.5 - of(StepLogged, events)[0].elapsed
    again = run(tmp_path, minutes=0.5, resume=True)
    assert again[-1].reason == "nothing left"
    assert again[-1].text.startswith("nothing is left to train: 0.5 minutes have passed, at step")
    assert again[-1].text.endswith("raise minutes=0.5 to go on")
    more = run(tmp_path, minutes=1.0, resume=True)
    assert more[-1].reason == "minutes"
    assert more[-1].step > events[-1].step


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.0, 9, 11), (2.0, 8, 11), (20.0, 4, 4)])
def test_minutes_validate_several_times(
    tmp_path: Path, clock: StepClock, seconds: float, least: int, most: int
) -> None:
    clock.validation = seconds
    steps = [event.step for event in of(Validated, run(tmp_path, minutes=4.0))]
    assert least <= len(steps) <= most
    gaps = [b - a for a, b in pairwise(steps[:-1])]
    assert max(gaps) - min(gaps) <= 1, "they are evenly spaced"


def test_minutes_beside_steps_leave_patience_to_the_steps(tmp_path: Path, clock: StepClock) -> None:
    """The weights of a run that ends after steps do not depend on the clock."""
    events = run(tmp_path, steps=40, minutes=1.0, validate_every=100, patience=1)
    assert len(of(Validated, events)) > 3
    assert progress(tmp_path)["bad"] == 0


def test_checkpoints_by_the_clock(tmp_path: Path, clock: StepClock) -> None:
    """Every step that passes six seconds is saved; weights do not depend on it, nor do those of a resumed run."""
    rare: dict[str, Any] = {"save_every": 1000, "validate_every": 1000}
    events = run(tmp_path / "timed", steps=20, save_minutes=0.1, **rare)
    saved = [event.step for event in of(Saved, events) if event.path.name == "last.safetensors"]
    assert saved == [7, 14, 20]
    resumed = run(tmp_path / "timed", steps=30, save_minutes=0.1, resume=True, **rare)
    assert [event.step for event in of(Saved, resumed) if event.path.name == "last.safetensors"] == [27, 30]
    run(tmp_path / "plain", steps=20, **rare)
    run(tmp_path / "plain", steps=30, resume=True, **rare)
    same(tmp_path / "timed", tmp_path / "plain")
    with pytest.raises(ValueError, match="save_minutes must be positive and finite, got 0"):
        TrainingConfig(steps=1, save_minutes=0)


def test_slow_steps_are_reported_by_time(tmp_path: Path, clock: StepClock) -> None:
    training = TrainingConfig(steps=5, threads=1, device="cpu")
    events = list(fit.fit(Toy(), tmp_path, training))
    reports = of(InterimReport, events)
    assert [report.progress.step for report in reports] == [1, 2, 3, 4, 5]
    assert reports[2].progress.elapsed == 3.0
    # files record the logged step alone
    assert [line["step"] for line in metrics(tmp_path) if line["kind"] == "step"] == [5]


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_schedule_decays_over_the_estimated_steps(tmp_path: Path, clock: StepClock, schedule: str) -> None:
    events = run(tmp_path, minutes=4.0, schedule=schedule, warmup=10, lr=1e-2, log_every=1)
    rates = [event.lr / 1e-2 for event in of(StepLogged, events)]
    assert rates[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    after = rates[10:]
    assert after == sorted(after, reverse=True)
    assert after[0] > 0.99
    assert 0 < after[-1] < 0.03
    middle = after[len(after) // 2]
    assert 0.4 < middle < 0.6
    # no step changes it by much: estimates are revised without a jump
    assert max(a - b for a, b in pairwise(after)) < 0.03


def test_a_resumed_estimate_is_the_same(tmp_path: Path, clock: StepClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after any step, and resumed from its last checkpoint: the same weights, bit for bit."""
    training: dict[str, Any] = {"minutes": 2.0, "schedule": "cosine", "warmup": 5, "lr": 1e-2, "save_every": 7}
    run(tmp_path / "alone", **training)
    alone = checkpoint.read(tmp_path / "alone" / "last.safetensors")
    loss, losses, killed = ToyProblem.loss, 0, 0

    def fatal(self: ToyProblem, *args: Any) -> Any:
        nonlocal losses
        losses += 1
        if losses == killed:
            raise KeyboardInterrupt
        return loss(self, *args)

    monkeypatch.setattr(ToyProblem, "loss", fatal)
    # before, at and behind the step that makes the first estimate, and late
    for killed in (5, 7, 8, 40, 77):
        losses, clock.now = 0, 100.0
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / str(killed), **training)
        clock.now = 0.0
        run(tmp_path / str(killed), resume=True, **training)
        resumed = checkpoint.read(tmp_path / str(killed) / "last.safetensors")
        assert alone.facts["progress"] == resumed.facts["progress"]
        assert all(torch.equal(t, resumed.tensors[name]) for name, t in alone.tensors.items())
        assert metrics(tmp_path / "alone") == metrics(tmp_path / str(killed))


def test_an_estimate_is_saved_when_it_is_made(
    tmp_path: Path, clock: StepClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any step depends on it: after a kill the machine may be faster, and the estimate stays."""
    training: dict[str, Any] = {"minutes": 4.0, "schedule": "cosine", "warmup": 5, "save_every": 1000}
    estimate = fit._Trainer._lr

    def fatal(self: Any, step: int) -> float:
        if self.state.estimate is not None:
            raise KeyboardInterrupt
        return estimate(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(fit._Trainer, "_lr", fatal)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, **training)
    stored = progress(tmp_path)["estimate"]
    places = {"start": stored["start"], "progress": 0.0, "origin": float(stored["start"])}
    assert stored == {"minutes": 4.0, "steps": pytest.approx(240, abs=5), **places}


def test_other_minutes_are_estimated_anew(tmp_path: Path, clock: StepClock) -> None:
    training: dict[str, Any] = {"schedule": "linear", "warmup": 5, "log_every": 1, "lr": 1.0, "clip": 1e-3}
    run(tmp_path, minutes=1.0, **training)
    assert progress(tmp_path)["estimate"]["minutes"] == 1.0
    more = of(StepLogged, run(tmp_path, minutes=2.0, resume=True, **training))
    assert progress(tmp_path)["estimate"]["minutes"] == 2.0
    # in the middle of the new minutes, as if they had been given at first
    assert more[2].lr == pytest.approx(0.5, abs=0.08)
    assert more[-1].lr < 0.1


def test_a_revised_estimate_goes_on_from_where_it_is() -> None:
    training = TrainingConfig(minutes=1.0, schedule="linear", warmup=4)
    first = time_budget.revised(training, TrainingState(step=10), 110, 5.0)
    assert first == StepEstimate(1.0, 110, 10, origin=5.0)
    state = TrainingState(step=60, estimate=first)
    for steps in (61, 90, 500):
        # at half of the time
        second = time_budget.revised(training, state, steps, 32.5)
        rates = [factor(training, step, None, Plateau(), estimate) for step, estimate in ((61, first), (61, second))]
        assert rates[0] == rates[1] == pytest.approx(0.5)
        assert 0 < factor(training, steps, None, Plateau(), second) <= 0.5
        assert factor(training, steps + 99, None, Plateau(), second) == factor(training, steps, None, Plateau(), second)


@pytest.mark.parametrize("validation", [0.0, 2.0, 9.0, 20.0])
def test_minutes_hold_with_the_last_validation(tmp_path: Path, clock: StepClock, validation: float) -> None:
    clock.validation = validation
    events = run(tmp_path, minutes=4.0)
    assert of(Validated, events)[-1].step == events[-1].step
    assert 240.0 - validation - 3.0 <= clock.now - 100.0 <= 240.0


@pytest.mark.parametrize("schedule", first(["cosine", "linear"]))
def test_a_schedule_follows_a_load_that_falls(
    tmp_path: Path, clock: StepClock, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that become ten times as fast decay over the minutes, and not over the steps of the slow ones."""
    loss = ToyProblem.loss

    def timed_loss(self: ToyProblem, *args: Any) -> Any:
        clock.now += 0.0 if clock.now - 100.0 < 60.0 else -0.9
        return loss(self, *args)

    monkeypatch.setattr(ToyProblem, "loss", timed_loss)
    events = run(tmp_path, minutes=4.0, schedule=schedule, warmup=10, lr=1e-2, log_every=1)
    logged = of(StepLogged, events)
    for event in logged[20:]:
        time_left = 1 - (event.elapsed - 12.0) / (240.0 - 12.0)
        right = time_left if schedule == "linear" else (1 + math.cos(math.pi * (1 - time_left))) / 2
        assert event.lr / 1e-2 == pytest.approx(right, abs=0.12)
    assert len(logged) > 1000
