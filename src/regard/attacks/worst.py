"""Worst: the strongest of several attacks per example, as AutoAttack combines them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attacks.apgd import APGD
from regard.attacks.base import Attack, Candidates
from regard.attacks.draws import Draws
from regard.attacks.gradient_attacks import GradientAttack
from regard.attacks.objectives import DLR, AttackLoss, Margin, TargetedDLR
from regard.attacks.square import Square
from regard.attacks.victim import Victim
from regard.common import checks

# other classes that the targeted attacks go to
_TARGETS = 9


@dataclass(frozen=True)
class Worst(Attack):
    """The first success of `members` per example: each attacks what those before it left  (Croce & Hein 2020).

    Without members: APGD by cross-entropy, by DLR, and by targeted DLR to each of the nine next classes, then Square,
    which uses no gradients. A loss that compares more classes than the model has gives way to the margin.
    """

    members: tuple[Attack, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for member in self.members:
            checks.instance_of("members", member, Attack, "(regard.attacks.PGD(), regard.attacks.Square())")

    def run(self, victim: Victim, clean: Tensor, labels: Tensor, draws: Draws) -> Candidates:
        before = victim.passes
        best, logits = clean.clone(), victim.logits(clean)
        rows = (logits.argmax(1) == labels).nonzero().flatten()
        queries = torch.full_like(labels, victim.passes - before)
        members, warnings = self._members(logits.shape[1])
        without_gradients, attacked = 0, rows.numel()
        for member in members:
            if not rows.numel():
                break
            run = member.run(victim, clean[rows], labels[rows], draws[rows.cpu()])
            wrong = victim.logits(run.inputs).argmax(1) != labels[rows]
            queries[rows] += run.queries + victim.samples
            best[rows[wrong]] = run.inputs[wrong]
            rows = rows[~wrong]
            if isinstance(member, Square):
                without_gradients += int(wrong.sum())
        if without_gradients > max(0.05 * attacked, 1):
            warnings.append(
                f"Square, which uses no gradients, broke {without_gradients} of {attacked} inputs that all attacks by "
                "gradients left; the gradients of the model are masked, so attacks by gradients overrate it"
            )
        return Candidates(best, queries, warnings)

    def _members(self, classes: int) -> tuple[list[Attack], list[str]]:
        """The attacks on a model of this many classes, and sentences on losses that were replaced."""
        losses: list[AttackLoss] = [DLR(), *(TargetedDLR(rank) for rank in range(1, min(_TARGETS, classes - 1) + 1))]
        default = [APGD(), *(APGD(loss=loss) for loss in losses), Square()]
        members: list[Attack] = []
        replaced: list[str] = []
        for member in self.members or default:
            if isinstance(member, Square) and self.ball != member.ball:
                continue
            if isinstance(member, GradientAttack) and member.loss.least_classes > classes:
                replaced.append(type(member.loss).__name__)
                member = replace(member, loss=Margin())
            member = replace(member.with_eps(self.eps), ball=self.ball, samples=self.samples)
            if member not in members:
                members.append(member)
        warnings = []
        if replaced:
            names = " and ".join(dict.fromkeys(replaced))
            warnings.append(f"the model has {classes} classes, too few for {names}; the margin takes their place")
        return members, warnings
