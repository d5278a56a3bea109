"""APGD: steps with momentum whose size is halved wherever the loss stops rising (Auto-PGD)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.attacks.balls import Start, SurfaceStart, column
from regard.attacks.base import Candidates
from regard.attacks.draws import Draws
from regard.attacks.gradient_attacks import GradientAttack, ascend
from regard.attacks.victim import LossGradient, Victim
from regard.common import checks


@dataclass(frozen=True)
class APGD(GradientAttack):
    """z = P(x_k + α sign g), x_{k+1} = P(x_k + ¾ (z − x_k) + ¼ (x_k − x_{k−1}))  (Croce & Hein 2020, Alg. 1).

    α is 2 eps at first. At checkpoints it is halved, and the search goes back to the best point, where fewer than `rho`
    of the steps since the last one raised the loss, or where neither α nor the best loss changed. Only inputs that the
    model gets right are attacked, each keeps the last point that is wrong, and one that resists stays clean.
    """

    steps: int = 100
    start: Start | None = field(default=SurfaceStart())
    restarts: int = field(default=1, kw_only=True)
    rho: float = field(default=0.75, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_ints("APGD", steps=self.steps, restarts=self.restarts)
        if not 0 <= self.rho <= 1:
            raise ValueError(f"rho must be a share of steps, from 0 to 1, got {self.rho:g}; try rho=0.75")

    def run(self, victim: Victim, clean: Tensor, labels: Tensor, draws: Draws) -> Candidates:
        before = victim.passes
        logits = victim.logits(clean)
        best, holds = clean.clone(), logits.argmax(1) == labels
        queries = torch.full_like(labels, victim.passes - before)
        for restart in range(self.restarts):
            if not (rows := holds.nonzero().flatten()).numel():
                break
            before = victim.passes
            x, row_labels = clean[rows], labels[rows]
            objective = self.loss.of(row_labels, logits[rows])
            walk = _AdaptiveWalk(self, x, row_labels)
            point = self.start_point(self.start, x, draws[rows.cpu()].restarted(restart))
            last = ascend(victim, point, objective, walk, self.steps, note=not restart)
            walk.take_wrong(last, victim.logits(last))
            broken = rows[walk.is_wrong]
            best[broken], holds[broken] = walk.wrong[walk.is_wrong], False
            queries[rows] += victim.passes - before
        return Candidates(best, queries)


class _AdaptiveWalk:
    """One run: the best point by loss, the last wrong one, and the checkpoints of the step sizes."""

    def __init__(self, attack: APGD, clean: Tensor, labels: Tensor) -> None:
        self.attack, self.clean, self.labels = attack, clean, labels
        # steps to the first checkpoint, and at least between two; each interval is shorter than the one before
        self.interval, self.least, self.shrink = (max(int(share * attack.steps), 1) for share in (0.22, 0.06, 0.03))
        self.alpha = 2.0 * column(torch.full_like(labels, attack.eps, dtype=clean.dtype), clean)
        self.is_wrong = torch.zeros_like(labels, dtype=torch.bool)
        self.wrong = clean.clone()
        self.taken = 0  # steps since the last checkpoint
        self.rises = torch.zeros_like(labels)
        # AutoAttack compares the first loss with 0, not with that of the start
        self.previous_loss = torch.zeros_like(labels, dtype=clean.dtype)
        self.was_halved = torch.ones_like(self.is_wrong)
        self.previous: Tensor | None = None  # the point before, once there is one
        self.best: LossGradient
        self.best_point: Tensor
        self.checked_loss: Tensor

    def move(self, x: Tensor, evaluation: LossGradient) -> Tensor:
        self.take_wrong(x, evaluation.logits)
        if self.previous is None:
            self.best, self.best_point, self.checked_loss = evaluation, x, evaluation.loss
            return self._step(x, evaluation.gradient, x, 1.0)
        self._take_best(x, evaluation)
        gradient = evaluation.gradient
        self.taken += 1
        if self.taken == self.interval:
            halved = self._checkpoint()
            x, gradient = _where(halved, self.best_point, x), _where(halved, self.best.gradient, gradient)
        return self._step(x, gradient, self.previous, 0.75)

    def take_wrong(self, x: Tensor, logits: Tensor) -> None:
        """Keeps the points that the model gets wrong."""
        wrong = logits.argmax(1) != self.labels
        self.wrong, self.is_wrong = _where(wrong, x, self.wrong), self.is_wrong | wrong

    def _take_best(self, x: Tensor, evaluation: LossGradient) -> None:
        loss = evaluation.loss
        self.rises += loss > self.previous_loss
        self.previous_loss = loss
        better = loss > self.best.loss
        self.best_point = _where(better, x, self.best_point)
        gradient = _where(better, evaluation.gradient, self.best.gradient)
        self.best = LossGradient(torch.where(better, loss, self.best.loss), gradient, evaluation.logits)

    def _checkpoint(self) -> Tensor:  # -> "b"
        """Halves the step sizes of the examples that it returns."""
        stalls = ~self.was_halved & (self.checked_loss >= self.best.loss)
        halved = (self.rises <= self.taken * self.attack.rho) | stalls
        self.alpha = _where(halved, self.alpha / 2, self.alpha)
        self.was_halved, self.checked_loss = halved, self.best.loss
        self.rises, self.taken = torch.zeros_like(self.rises), 0
        self.interval = max(self.interval - self.shrink, self.least)
        return halved

    def _step(self, x: Tensor, gradient: Tensor, previous: Tensor, share: float) -> Tensor:
        ball, eps, clean = self.attack.ball, self.attack.eps, self.clean
        momentum, self.previous = x - previous, x
        z = ball.clamp(x + self.alpha * ball.steepest(gradient), clean, eps)
        return ball.clamp(x + (z - x) * share + momentum * (1 - share), clean, eps)


def _where(rows: Tensor, chosen: Tensor, other: Tensor) -> Tensor:  # "b", "b ...", "b ..."
    return torch.where(column(rows, chosen), chosen, other)
