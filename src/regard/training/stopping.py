"""The end of a training: by steps, epochs, minutes or patience, whichever comes first."""

from regard.training.config import TrainingConfig
from regard.training.state import TrainingState


def total_steps(training: TrainingConfig, batches: int) -> int | None:
    """The step at which steps or epochs end, whichever comes first; None if minutes alone end the training."""
    limits = [] if training.steps is None else [training.steps]
    if training.epochs is not None:
        limits.append(max(1, round(training.epochs * batches / training.accumulate)))
    return min(limits, default=None)


def stop_reason(training: TrainingConfig, steps: int | None, state: TrainingState) -> str | None:
    """The reason why no step follows, or None; minutes are not checked here: one clock decides for all processes."""
    if steps is not None and state.step >= steps:
        return "done"
    if training.patience is not None and state.bad >= training.patience:
        return "patience"
    return None


def remaining_seconds(training: TrainingConfig, steps: int | None, state: TrainingState) -> float | None:
    """An estimate of the seconds until steps or minutes end; None without such an end."""
    estimates = []
    if steps is not None and state.step:
        estimates.append((steps - state.step) * state.elapsed / state.step)
    if training.minutes is not None:
        estimates.append(60 * training.minutes - state.elapsed)
    return max(min(estimates), 0.0) if estimates else None
