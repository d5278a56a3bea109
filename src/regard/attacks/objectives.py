"""The losses that attacks raise: cross-entropy, the margin, and the difference of logits ratio."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.inference.margins import class_margin

# logits -> the loss of each example
Objective = Callable[[Tensor], Tensor]  # "b k" -> "b"


class AttackLoss(ABC):
    """A loss of logits that an attack raises, one number per example."""

    least_classes: ClassVar[int] = 2
    needs_clean_logits: ClassVar[bool] = False

    @abstractmethod
    def of(self, labels: Tensor, clean: Tensor | None) -> Objective:  # "b", "b k"
        """The loss for these classes; `clean` are the logits of the clean inputs, if it needs them."""

    def check(self, classes: int) -> None:
        """Raises for fewer classes than the loss compares."""
        if classes < self.least_classes:
            raise ValueError(
                f"{self!r} compares {self.least_classes} logits, and the model has {classes} classes; "
                "use loss=Margin(), which compares two"
            )


@dataclass(frozen=True)
class CrossEntropy(AttackLoss):
    """−log softmax(z)_y; its gradient vanishes where a logit is far above the others."""

    def of(self, labels: Tensor, clean: Tensor | None) -> Objective:
        return lambda logits: F.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class Margin(AttackLoss):
    """max_{i≠y} z_i − z_y: positive where the class is wrong  (Carlini & Wagner 2017)."""

    def of(self, labels: Tensor, clean: Tensor | None) -> Objective:
        return lambda logits: class_margin(logits, labels)


@dataclass(frozen=True)
class DLR(AttackLoss):
    """−(z_y − max_{i≠y} z_i) / (z_π1 − z_π3), π in descending order: the scale of logits cancels
    (Croce & Hein 2020, eq. 6)."""

    least_classes: ClassVar[int] = 3

    def of(self, labels: Tensor, clean: Tensor | None) -> Objective:
        def loss(logits: Tensor) -> Tensor:
            self.check(logits.shape[1])
            top = logits.topk(3, dim=1).values
            return class_margin(logits, labels) / (top[:, 0] - top[:, 2] + 1e-12)

        return loss


@dataclass(frozen=True)
class TargetedDLR(AttackLoss):
    """−(z_y − z_t) / (z_π1 − (z_π3 + z_π4)/2): towards class t, of the clean logits the `rank`-th beside y
    (Croce & Hein 2020, eq. 7)."""

    rank: int = 1

    least_classes: ClassVar[int] = 4
    needs_clean_logits: ClassVar[bool] = True

    def of(self, labels: Tensor, clean: Tensor | None) -> Objective:
        assert clean is not None
        self.check(clean.shape[1])
        others = clean.scatter(1, labels[:, None], -torch.inf)
        targets = others.argsort(dim=1, descending=True)[:, self.rank - 1, None]  # "b 1"

        def loss(logits: Tensor) -> Tensor:
            top = logits.topk(4, dim=1).values
            spread = top[:, 0] - (top[:, 2] + top[:, 3]) / 2 + 1e-12
            return (logits.gather(1, targets) - logits.gather(1, labels[:, None])).squeeze(1) / spread

        return loss

    def check(self, classes: int) -> None:
        super().check(classes)
        if not 1 <= self.rank < classes:
            raise ValueError(
                f"rank must be from 1 to {classes - 1}, the other classes of the model, got {self.rank}; try rank=1"
            )
