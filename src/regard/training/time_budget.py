"""Decisions of the clock in a training that ends after minutes: validations, and the steps that a schedule decays over.

Everything that the clock decides becomes part of the TrainingState, with a checkpoint: a step stays a pure function of
the state, and a resumed run repeats the decisions that were made before.
"""

from dataclasses import dataclass

from regard.training.config import PLANNED, TrainingConfig
from regard.training.schedule import StepEstimate
from regard.training.state import TrainingState

# at least this many validations in the time of a training, unless they take long; then at least the second number
_VALIDATIONS, _SLOW_VALIDATIONS = 10, 4
# a validation that takes long is followed by this many times as much training
_TRAINING_PER_VALIDATION = 4
# the share of the time after which the number of steps is estimated
_MEASURED = 0.05
# a schedule whose progress differs from that of the clock by more than this is estimated anew
_DRIFT = 0.05


@dataclass(frozen=True)
class ClockRequests:
    """The decisions of the clock before a step; the first process makes them for all."""

    stop: bool = False
    validate: bool = False
    estimate: bool = False
    save: bool = False


def requests(
    training: TrainingConfig, steps: int | None, state: TrainingState, elapsed: float, saved: float
) -> ClockRequests:
    """The decisions after `elapsed` seconds, of which the last checkpoint has `saved`; without minutes there are none.

    A checkpoint changes no step, so that its time is no part of the state.
    """
    save = training.save_minutes is not None and elapsed - saved >= 60 * training.save_minutes
    if training.minutes is None:
        return ClockRequests(save=save)
    seconds = 60 * training.minutes
    estimate = state.estimate
    is_open = training.schedule in PLANNED and steps is None
    is_measured = state.step > 0 and elapsed >= _MEASURED * seconds
    is_due = estimate is None or estimate.minutes != training.minutes or _has_drifted(training, state, elapsed)
    return ClockRequests(
        stop=elapsed >= end_of_steps(training, state, elapsed),
        validate=elapsed >= (state.validate_at or seconds / _VALIDATIONS),
        estimate=is_open and is_measured and is_due,
        save=save,
    )


def end_of_steps(training: TrainingConfig, state: TrainingState, elapsed: float) -> float:
    """The seconds after which no step begins: the last step, the last validation and that of an average must fit in."""
    assert training.minutes is not None
    validations = 2 if training.average else 1
    return 60 * training.minutes - validations * state.validation_seconds - elapsed / max(state.step, 1)


def _clock_progress(training: TrainingConfig, state: TrainingState, elapsed: float) -> float:
    """The progress of a schedule that follows the clock alone."""
    assert state.estimate is not None
    origin, end = state.estimate.origin, end_of_steps(training, state, elapsed)
    return min(max((elapsed - origin) / max(end - origin, 1e-9), 0.0), 1.0)


def _has_drifted(training: TrainingConfig, state: TrainingState, elapsed: float) -> bool:
    """Whether the steps went faster or slower than estimated, as with a load of the machine that falls or rises."""
    if state.estimate is None or state.step <= training.warmup:
        return False
    return abs(state.estimate.progress_at(state.step + 1) - _clock_progress(training, state, elapsed)) > _DRIFT


def next_validation(training: TrainingConfig, elapsed: float, took: float) -> float:
    """The seconds of training after which a validation is due, if the last one took so long; 0 without minutes."""
    if training.minutes is None:
        return 0.0
    seconds = 60 * training.minutes
    interval = max(seconds / _VALIDATIONS, _TRAINING_PER_VALIDATION * took)
    return elapsed + min(interval, seconds / _SLOW_VALIDATIONS)


def estimated_steps(training: TrainingConfig, state: TrainingState, elapsed: float) -> int:
    """The number of steps at the end of the minutes, at the mean speed so far, validations included."""
    left = max(end_of_steps(training, state, elapsed) - elapsed, 0.0)
    return state.step + max(1, round(left * state.step / max(elapsed, 1e-9)))


def revised(training: TrainingConfig, state: TrainingState, steps: int, elapsed: float) -> StepEstimate:
    """The estimate of the state with another number of steps.

    The learning rate goes on from where it is, unless the steps and the clock have drifted apart: then it is that of
    the clock, so that it rises again if the steps went faster than estimated.
    """
    assert training.minutes is not None
    done, old = state.step, state.estimate
    if old is None:
        start = max(done, training.warmup)
        return StepEstimate(training.minutes, steps, start, origin=elapsed * start / max(done, 1))
    if old.minutes != training.minutes or done <= training.warmup:
        # the same as if these minutes had been given at first
        return StepEstimate(training.minutes, steps, training.warmup, origin=elapsed * training.warmup / max(done, 1))
    progress = old.progress_at(done + 1)
    if _has_drifted(training, state, elapsed):
        progress = _clock_progress(training, state, elapsed)
    return StepEstimate(training.minutes, steps, done, progress, old.origin)
