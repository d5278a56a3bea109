"""FGSM, PGD and MI-FGSM: steps along the gradient of a loss, each back into the ball.

    x ← project(x + step · direction(∇ₓ loss))

Ball, loss, direction and start are the four choices; `ascend` is the loop of all of them, and of APGD.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from regard.attacks.balls import Start, column
from regard.attacks.base import Attack, Candidates, check_step
from regard.attacks.draws import Draws
from regard.attacks.objectives import AttackLoss, CrossEntropy, Objective
from regard.attacks.victim import LossGradient, Victim
from regard.common import checks


class Walk(Protocol):
    """The rule of a step, with what it remembers of the steps before."""

    def move(self, x: Tensor, evaluation: LossGradient) -> Tensor:  # "b ..."
        """The next point; `evaluation` is that of x."""


def ascend(victim: Victim, x: Tensor, objective: Objective, walk: Walk, steps: int, *, note: bool) -> Tensor:
    """The point after this many steps; `note`: whether the first gradients are those of the whole attack."""
    for step in range(steps):
        evaluation = victim.gradient(x, objective)
        if note and not step:
            victim.note_first_step(evaluation)
        x = walk.move(x, evaluation)
    return x


@dataclass(frozen=True)
class GradientAttack(Attack, ABC):
    """An attack by the gradient of a loss."""

    loss: AttackLoss = field(default=CrossEntropy(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance_of("loss", self.loss, AttackLoss, "regard.attacks.CrossEntropy()")

    def objective(self, victim: Victim, clean: Tensor, labels: Tensor) -> Objective:
        """The loss of these examples."""
        return self.loss.of(labels, victim.logits(clean) if self.loss.needs_clean_logits else None)

    def start_point(self, start: Start | None, clean: Tensor, draws: Draws) -> Tensor:
        return clean if start is None else start.point(clean, self.ball, self.eps, draws)


@dataclass(frozen=True)
class FGSM(GradientAttack):
    """x + eps · sign ∇ₓ loss  (Goodfellow et al. 2015); with step=1.25 eps from a random start: Wong et al. 2020."""

    step: float | None = None
    start: Start | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_step(self.step, "FGSM")

    def run(self, victim: Victim, clean: Tensor, labels: Tensor, draws: Draws) -> Candidates:
        before = victim.passes
        x = self.start_point(self.start, clean, draws)
        evaluation = victim.gradient(x, self.objective(victim, clean, labels))
        victim.note_first_step(evaluation)
        x = x + (self.eps if self.step is None else self.step) * self.ball.steepest(evaluation.gradient)
        # one step of eps from the clean input stays in the ball; projected, it would be rounded twice
        leaves = self.start is not None or self.step is not None
        x = self.ball.project(x, clean, self.eps) if leaves else x.clamp(0.0, 1.0)
        return Candidates(x, torch.full_like(labels, victim.passes - before))


@dataclass(frozen=True)
class IteratedAttack(GradientAttack, ABC):
    """An attack of several steps, of which `restarts` begin at other points; an input keeps its first success."""

    steps: int = 10
    step: float | None = None
    start: Start | None = None
    restarts: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_step(self.step, name)
        checks.positive_ints(name, steps=self.steps, restarts=self.restarts)
        if self.restarts > 1 and self.start is None:
            raise ValueError(
                f"restarts={self.restarts} would all begin at the clean input; give start=UniformStart() as well"
            )

    @abstractmethod
    def walk(self, clean: Tensor) -> Walk: ...

    def run(self, victim: Victim, clean: Tensor, labels: Tensor, draws: Draws) -> Candidates:
        before = victim.passes
        objective = self.objective(victim, clean, labels)
        x = self._run_once(victim, clean, objective, draws)
        for restart in range(1, self.restarts):
            holds = victim.logits(x).argmax(1) == labels
            again = self._run_once(victim, clean, objective, draws.restarted(restart))
            x = torch.where(column(holds, x), again, x)
        return Candidates(x, torch.full_like(labels, victim.passes - before))

    def _run_once(self, victim: Victim, clean: Tensor, objective: Objective, draws: Draws) -> Tensor:
        x = self.start_point(self.start, clean, draws)
        return ascend(victim, x, objective, self.walk(clean), self.steps, note=not draws.restart)


@dataclass(frozen=True)
class PGD(IteratedAttack):
    """x ← project(x + step · sign ∇ₓ loss)  (Madry et al. 2018); `step` is 2.5 eps / steps unless given."""

    def walk(self, clean: Tensor) -> Walk:
        return _SteepestWalk(self, clean, 2.5 * self.eps / self.steps if self.step is None else self.step)


@dataclass(frozen=True)
class MIFGSM(IteratedAttack):
    """m ← decay · m + g / mean |g|, x ← project(x + step · sign m)  (Dong et al. 2018); `step` is eps / steps unless
    given."""

    decay: float = field(default=1.0, kw_only=True)

    def walk(self, clean: Tensor) -> Walk:
        step = self.eps / self.steps if self.step is None else self.step
        return _MomentumWalk(self, clean, step, self.decay)


class _SteepestWalk:
    def __init__(self, attack: Attack, clean: Tensor, step: float) -> None:
        self.attack, self.clean, self.step = attack, clean, step

    def move(self, x: Tensor, evaluation: LossGradient) -> Tensor:
        ball = self.attack.ball
        return ball.project(x + self.step * ball.steepest(evaluation.gradient), self.clean, self.attack.eps)


class _MomentumWalk(_SteepestWalk):
    def __init__(self, attack: Attack, clean: Tensor, step: float, decay: float) -> None:
        super().__init__(attack, clean, step)
        self.momentum, self.decay = torch.zeros_like(clean), decay

    def move(self, x: Tensor, evaluation: LossGradient) -> Tensor:
        gradient = evaluation.gradient
        size = gradient.abs().mean(tuple(range(1, gradient.ndim)), keepdim=True)
        # a gradient of zero has no direction
        self.momentum = gradient / size.where(size > 0, 1.0) + self.momentum * self.decay
        return super().move(x, evaluation._replace(gradient=self.momentum))
