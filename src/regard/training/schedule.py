"""The factor of the learning rate at step s = 1, 2, …, after a linear warm-up s / w of w steps.

constant       1
inverse-sqrt   sqrt(w / s)                                        (Vaswani et al. 2017, 5.3, up to their constant)
cosine         (1 + cos(π p)) / 2, p = (s - 1 - w) / (n - w)      (Loshchilov & Hutter 2017, one period)
linear         1 - p
plateau        lowered whenever validation stops improving

If minutes end a training, its number of steps n is an estimate; until there is one, cosine and linear are constant.
"""

import math
from dataclasses import dataclass, replace

from regard.training.config import TrainingConfig


def constant(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def inverse_sqrt(step: int, warmup: int) -> float:
    peak = max(warmup, 1)
    return min(step / peak, math.sqrt(peak / step))


@dataclass(frozen=True)
class StepEstimate:
    """p = p₀ + (1 - p₀) (s - 1 - s₀) / (n - s₀) after s₀ = `start` steps at p₀ = `progress`, for n `steps`."""

    minutes: float
    steps: int
    start: int
    progress: float = 0.0
    origin: float = 0.0  # the seconds of training after which the progress is 0

    def progress_at(self, step: int) -> float:
        """Below 1 for every step: steps beyond the estimate have the learning rate of its last one."""
        done = max(0, min(step, self.steps) - 1 - self.start)
        return self.progress + (1 - self.progress) * done / max(self.steps - self.start, 1)


@dataclass(frozen=True)
class Plateau:
    """factor ← factor · by, once `patience` validations in a row did not improve."""

    factor: float = 1.0
    bad: int = 0

    def after(self, improved: bool, by: float, patience: int) -> "Plateau":
        if improved:
            return replace(self, bad=0)
        if self.bad + 1 < patience:
            return replace(self, bad=self.bad + 1)
        return Plateau(self.factor * by, 0)


def factor(
    training: TrainingConfig, step: int, steps: int | None, plateau: Plateau, estimate: StepEstimate | None = None
) -> float:
    """The factor of the peak learning rate at this step, of `steps` in all, or else of as many as are estimated."""
    if training.schedule == "inverse-sqrt":
        return inverse_sqrt(step, training.warmup)
    if training.schedule == "constant":
        return constant(step, training.warmup)
    if training.schedule == "plateau":
        return constant(step, training.warmup) * plateau.factor
    if step <= training.warmup or (steps is None and estimate is None):
        return constant(step, training.warmup)
    if steps is not None:
        progress = min(1.0, (step - 1 - training.warmup) / max(steps - training.warmup, 1))
    else:
        assert estimate is not None
        progress = estimate.progress_at(step)
    return (1 + math.cos(math.pi * progress)) / 2 if training.schedule == "cosine" else 1 - progress
