"""Where a training ends: by steps, epochs, minutes or patience, whichever is first."""

from regard.training.config import TrainingConfig
from regard.training.state import TrainingState


def steps_in_all(training: TrainingConfig, batches: int) -> int | None:
    """Where steps and epochs end, whichever is first; None if minutes alone do."""
    limits = [] if training.steps is None else [training.steps]
    if training.epochs is not None:
        limits.append(max(1, round(training.epochs * batches / training.accumulate)))
    return min(limits, default=None)


def reason(training: TrainingConfig, steps: int | None, progress: TrainingState) -> str | None:
    """Why no step follows, if none does; minutes end amid a step, where a clock decides for all processes."""
    if steps is not None and progress.step >= steps:
        return "done"
    if training.patience is not None and progress.bad >= training.patience:
        return "patience"
    return None


def remaining(training: TrainingConfig, steps: int | None, progress: TrainingState) -> float | None:
    """Seconds to the end of steps or minutes, as far as one can tell."""
    left = []
    if steps is not None and progress.step:
        left.append((steps - progress.step) * progress.elapsed / progress.step)
    if training.minutes is not None:
        left.append(60 * training.minutes - progress.elapsed)
    return max(min(left), 0.0) if left else None
