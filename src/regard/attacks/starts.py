"""The points that attacks start from; None, where a start is asked for, is the clean input."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from regard.attacks.balls import Ball
from regard.attacks.draws import Draws


class Start(ABC):
    """A random point of the ball, in the box."""

    @abstractmethod
    def point(self, clean: Tensor, ball: Ball, eps: float, draws: Draws) -> Tensor: ...


@dataclass(frozen=True)
class UniformStart(Start):
    """Anywhere in the ball  (Madry et al. 2018)."""

    def point(self, clean: Tensor, ball: Ball, eps: float, draws: Draws) -> Tensor:
        return (clean + ball.inside(draws, clean, eps)).clamp(0.0, 1.0)


@dataclass(frozen=True)
class SurfaceStart(Start):
    """On the surface of the ball  (Croce & Hein 2020)."""

    def point(self, clean: Tensor, ball: Ball, eps: float, draws: Draws) -> Tensor:
        return (clean + ball.surface(draws, clean, eps)).clamp(0.0, 1.0)
