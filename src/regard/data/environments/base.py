"""Environment, the rules of a game, and its State, the arrays of many games."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

# the arrays of n games, "n …" each
State = dict[str, NDArray[np.int64]]


class Environment(ABC):
    """The rules of a game. All chance is drawn when an episode begins, so its course follows from its actions.

    An episode that reaches its end is terminated; one that is cut off after `longest` steps is truncated: it would have
    gone on.
    """

    name: ClassVar[str]
    observation: tuple[int, ...]  # the shape of an observation: numbers from 0 to 1; (h, w) is a picture
    action_names: tuple[str, ...]
    longest: int  # steps
    num_draws: int  # random numbers per episode
    goal: float  # an episode with this return, or more, is a success

    @abstractmethod
    def begin(self, draws: NDArray[np.float64]) -> State:  # "n num_draws"
        """The state at the first step."""

    @abstractmethod
    def observe(self, state: State) -> NDArray[np.float32]:  # -> "n *observation"
        """The observation of every game."""

    @abstractmethod
    def act(
        self, state: State, actions: NDArray[np.int64], t: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Takes the actions in step t, from 0, in place; the rewards, and which episodes are terminated."""

    @abstractmethod
    def describe(self, observation: NDArray[np.float32]) -> str:
        """An observation in a few words."""

    def picture(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:  # "*o" -> "h w"
        """An observation as grey levels, from 0 to 1."""
        return observation if observation.ndim == 2 else observation[:, None]

    def target(self, observation: NDArray[np.float32]) -> tuple[int, int] | None:
        """The row and column of the pixel in the middle of what a picture asks for; None if it asks for no place."""
        return None

    @property
    def num_actions(self) -> int:
        return len(self.action_names)


def one_hot(indices: NDArray[np.int64], count: int) -> NDArray[np.float32]:  # "*n" -> "*n count"
    """Rows of zeros with a one; an index of −1 is a row of zeros."""
    return (indices[..., None] == np.arange(count)).astype(np.float32)


def letters(count: int) -> Sequence[str]:
    """Names of `count` symbols: A, B, …"""
    return [chr(ord("A") + n) if n < 26 else f"S{n}" for n in range(count)]
