"""The factor of the learning rate at step s = 1, 2, …, after a linear warm-up s / w of w steps.

constant       1
inverse-sqrt   sqrt(w / s)                                        (Vaswani et al. 2017, 5.3, up to their constant)
cosine         (1 + cos(π p)) / 2, p = (s - 1 - w) / (n - w)      (Loshchilov & Hutter 2017, one period)
linear         1 - p
plateau        lowered whenever validation stops improving
"""

import math
from dataclasses import dataclass, replace

from regard.training.config import TrainingConfig


def constant(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def inverse_sqrt(step: int, warmup: int) -> float:
    peak = max(warmup, 1)
    return min(step / peak, math.sqrt(peak / step))


def cosine(step: int, warmup: int, steps: int) -> float:
    return constant(step, warmup) if step <= warmup else (1 + math.cos(math.pi * _progress(step, warmup, steps))) / 2


def linear(step: int, warmup: int, steps: int) -> float:
    return constant(step, warmup) if step <= warmup else 1 - _progress(step, warmup, steps)


def _progress(step: int, warmup: int, steps: int) -> float:
    return min(1.0, (step - 1 - warmup) / max(steps - warmup, 1))


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


def factor(training: TrainingConfig, step: int, steps: int | None, plateau: Plateau) -> float:
    """The factor of the peak learning rate at this step, of `steps` in all."""
    if training.schedule == "inverse-sqrt":
        return inverse_sqrt(step, training.warmup)
    if training.schedule == "constant":
        return constant(step, training.warmup)
    if training.schedule == "plateau":
        return constant(step, training.warmup) * plateau.factor
    assert steps is not None, "TrainingConfig refuses cosine and linear without steps or epochs"
    return (cosine if training.schedule == "cosine" else linear)(step, training.warmup, steps)
