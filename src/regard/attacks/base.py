"""Attack: the options of an attack, as a frozen value that runs on a victim."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from torch import Tensor

from regard.attacks.balls import Ball, Linf
from regard.attacks.draws import Draws
from regard.attacks.victim import Victim
from regard.common import checks


class Candidates(NamedTuple):
    """The inputs that an attack ends with, and the passes of the model that each of them took."""

    inputs: Tensor  # "b ..."
    queries: Tensor  # "b"
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Attack(ABC):
    """A search for inputs near clean ones that a model gets wrong.

    `eps` is the radius of the ball, in units of the box, [0, 1]. `samples` are the passes over which a stochastic model
    is averaged.
    """

    eps: float = 0.1
    ball: Ball = field(default=Linf(), kw_only=True)
    samples: int = field(default=10, kw_only=True)

    def __post_init__(self) -> None:
        checks.number("eps", self.eps, type(self).__name__)
        checks.instance_of("ball", self.ball, Ball, "regard.attacks.Linf()")
        self.ball.check(self.eps)
        checks.positive_ints(type(self).__name__, samples=self.samples)

    @abstractmethod
    def run(self, victim: Victim, clean: Tensor, labels: Tensor, draws: Draws) -> Candidates:
        """Attacked inputs; those of an attack that knows its success are clean where it had none."""

    def with_eps(self, eps: float) -> Self:
        """The same in a ball of another radius; a step that follows from eps follows it."""
        return replace(self, eps=eps)


def check_step(step: float | None, owner: str) -> None:
    """Raises for a step that goes nowhere; None stands for the default."""
    if step is not None and not 0 < step < math.inf:
        raise ValueError(f"step must be more than 0 and finite for {owner}, got {step:g}; leave it out, or try 0.025")
