"""The balls that attacks stay in: Linf and L2. The box of all inputs is [0, 1]."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attacks.draws import Draws

# a length by which nothing is divided
_TINY = 1e-12


class Ball(ABC):
    """All inputs within `eps` of a clean one, by a norm."""

    @abstractmethod
    def check(self, eps: float) -> None:
        """Raises for an eps that means nothing in a box from 0 to 1."""

    @abstractmethod
    def distance(self, delta: Tensor) -> Tensor:  # "b ..." -> "b"
        """The norm of each difference."""

    @abstractmethod
    def steepest(self, gradient: Tensor) -> Tensor:  # "b ..."
        """The direction of length 1 that raises the loss most."""

    @abstractmethod
    def project(self, x: Tensor, clean: Tensor, eps: float) -> Tensor:  # "b ..."
        """The nearest point of the ball around `clean`, then of the box."""

    @abstractmethod
    def clamp(self, x: Tensor, clean: Tensor, eps: float) -> Tensor:  # "b ..."
        """`project`, rounded as AutoAttack does."""

    @abstractmethod
    def inside(self, draws: Draws, like: Tensor, eps: float) -> Tensor:  # "b ..."
        """Differences drawn uniformly from the ball."""

    @abstractmethod
    def surface(self, draws: Draws, like: Tensor, eps: float) -> Tensor:  # "b ..."
        """Differences drawn from the surface of the ball."""


@dataclass(frozen=True)
class Linf(Ball):
    """max |x' − x| ≤ eps."""

    def check(self, eps: float) -> None:
        if not 0 <= eps <= 1:
            raise ValueError(
                f"eps must be from 0 to 1, the box of inputs, got {eps:g}; 8 of 255 grey levels are eps={8 / 255:.3g}"
            )

    def distance(self, delta: Tensor) -> Tensor:
        return delta.flatten(1).abs().amax(1)

    def steepest(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    def project(self, x: Tensor, clean: Tensor, eps: float) -> Tensor:
        return (clean + (x - clean).clamp(-eps, eps)).clamp(0.0, 1.0)

    def clamp(self, x: Tensor, clean: Tensor, eps: float) -> Tensor:
        return x.clamp(clean - eps, clean + eps).clamp(0.0, 1.0)

    def inside(self, draws: Draws, like: Tensor, eps: float) -> Tensor:
        return draws.uniform(like, -eps, eps)

    def surface(self, draws: Draws, like: Tensor, eps: float) -> Tensor:
        delta = 2 * draws.uniform(like, 0.0, 1.0) - 1
        return eps * delta / column(delta.flatten(1).abs().amax(1), like)


@dataclass(frozen=True)
class L2(Ball):
    """‖x' − x‖₂ ≤ eps."""

    def check(self, eps: float) -> None:
        if not 0 <= eps < math.inf:
            raise ValueError(f"eps must be 0 or more and finite, got {eps:g}; try eps=1.0")

    def distance(self, delta: Tensor) -> Tensor:
        return torch.linalg.vector_norm(delta.flatten(1), dim=1)

    def steepest(self, gradient: Tensor) -> Tensor:
        return gradient / column(self.distance(gradient).clamp_min(_TINY), gradient)

    def project(self, x: Tensor, clean: Tensor, eps: float) -> Tensor:
        delta = x - clean
        shrink = (eps / self.distance(delta).clamp_min(_TINY)).clamp_max(1.0)
        return (clean + delta * column(shrink, delta)).clamp(0.0, 1.0)

    def clamp(self, x: Tensor, clean: Tensor, eps: float) -> Tensor:
        return self.project(x, clean, eps)

    def inside(self, draws: Draws, like: Tensor, eps: float) -> Tensor:
        # a radius r is as likely as the surface at r is large, r^(d−1)
        radius = draws.uniform(like.flatten(1)[:, 0], 0.0, 1.0, stream=1) ** (1 / like[0].numel())
        return self.surface(draws, like, eps) * column(radius, like)

    def surface(self, draws: Draws, like: Tensor, eps: float) -> Tensor:
        return eps * self.steepest(draws.normal(like))


def column(values: Tensor, like: Tensor) -> Tensor:  # "b" -> "b 1 ..."
    """One value per example, to be multiplied by or chosen between tensors as `like`."""
    return values.view(-1, *(1,) * (like.ndim - 1))


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
