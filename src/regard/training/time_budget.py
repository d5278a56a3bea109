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


@dataclass(frozen=True)
class ClockRequests:
    """The decisions of the clock before a step; the first process makes them for all."""

    stop: bool = False
    validate: bool = False
    estimate: bool = False


def requests(training: TrainingConfig, steps: int | None, state: TrainingState, elapsed: float) -> ClockRequests:
    """The decisions after `elapsed` seconds; without minutes there are none."""
    if training.minutes is None:
        return ClockRequests()
    seconds = 60 * training.minutes
    estimate = state.estimate
    is_open = training.schedule in PLANNED and steps is None
    is_measured = state.step > 0 and elapsed >= _MEASURED * seconds
    return ClockRequests(
        stop=elapsed >= seconds,
        validate=elapsed >= (state.validate_at or seconds / _VALIDATIONS),
        estimate=is_open and is_measured and (estimate is None or estimate.minutes != training.minutes),
    )


def next_validation(training: TrainingConfig, elapsed: float, took: float) -> float:
    """The seconds of training after which a validation is due, if the last one took so long; 0 without minutes."""
    if training.minutes is None:
        return 0.0
    seconds = 60 * training.minutes
    interval = max(seconds / _VALIDATIONS, _TRAINING_PER_VALIDATION * took)
    return elapsed + min(interval, seconds / _SLOW_VALIDATIONS)


def estimated_steps(training: TrainingConfig, state: TrainingState, elapsed: float) -> int:
    """The number of steps at the end of the minutes, at the mean speed so far, validations included."""
    assert training.minutes is not None
    left = max(60 * training.minutes - elapsed, 0.0)
    return state.step + max(1, round(left * state.step / max(elapsed, 1e-9)))


def revised(training: TrainingConfig, state: TrainingState, steps: int) -> StepEstimate:
    """The estimate of the state with another number of steps; the learning rate goes on from where it is."""
    assert training.minutes is not None
    done, old = state.step, state.estimate
    if old is None:
        return StepEstimate(training.minutes, steps, max(done, training.warmup))
    if old.minutes != training.minutes or done <= training.warmup:
        # the same as if these minutes had been given at first
        return StepEstimate(training.minutes, steps, training.warmup)
    return StepEstimate(training.minutes, steps, done, old.progress_at(done + 1))
