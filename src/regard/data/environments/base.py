"""EnvironmentSpec, what an agent knows of a game; Environment, its rules, and their State, the arrays of many games."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

# the arrays of n games, "n …" each
State = dict[str, NDArray[Any]]
# an action per game: whole numbers "n", or with continuous actions numbers "n a"
Actions = NDArray[Any]
# the rewards of a move, and which episodes are terminated, "n" each
Outcome = tuple[NDArray[np.float32], NDArray[np.bool_]]


class ObjectLayout(NamedTuple):
    """An observation [own; d; d_1; f_1; d_2; f_2; …]: own numbers, a description d, and objects with d_o and f_o."""

    own: int
    description: int
    num_objects: int
    features: int

    @property
    def size(self) -> int:
        """Numbers per observation."""
        return self.own + self.description + self.num_objects * (self.description + self.features)

    def split(self, observation: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:  # -> "own", "d", "o d+f"
        """The own numbers, the description, and a row per object."""
        own, name, objects = np.split(observation, np.cumsum([self.own, self.description]))
        return own, name, objects.reshape(self.num_objects, -1)


class EnvironmentSpec(ABC):
    """The part of a game that an agent must know: what it shows, and which actions there are.

    An episode that reaches its end is terminated; one that is cut off after `longest` moves is truncated: it would have
    gone on.
    """

    name: str
    observation: tuple[int, ...]  # the shape of an observation; (h, w) is a picture
    action_names: tuple[str, ...]
    cell_names: tuple[str, ...] = ()  # names of the numbers of an observation, if they have any
    continuous: bool = False  # an action is one number per name, from −1 to 1, instead of one of the names
    longest: int  # moves
    goal: float  # an episode with this return, or more, is a success
    players: ClassVar[int] = 1  # several take turns, and none sees what the others saw and did

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

    def no_actions(self, count: int) -> Actions:
        """The actions before the first ones."""
        return np.zeros((count, self.num_actions), np.float32) if self.continuous else np.full(count, -1)

    def random_actions(self, count: int, rng: np.random.Generator) -> Actions:
        """Uniformly random ones."""
        if self.continuous:
            return rng.uniform(-1, 1, (count, self.num_actions)).astype(np.float32)
        return rng.integers(0, self.num_actions, count)

    def name_action(self, action: Any) -> str:
        """One action in a word."""
        return ",".join(f"{number:.3g}" for number in action) if self.continuous else self.action_names[action]

    def read_action(self, word: str) -> Any:
        """The action of a word that `name_action` may have written."""
        if self.continuous:
            return self._read_numbers(word)
        if word not in self.action_names:
            raise ValueError(f"unknown action {word!r}; known are: {', '.join(self.action_names)}")
        return self.action_names.index(word)

    def _read_numbers(self, word: str) -> list[float]:
        try:
            numbers = [float(part) for part in word.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != self.num_actions or not np.isfinite(numbers).all():
            zeros = ",".join(["0"] * self.num_actions)
            raise ValueError(
                f"an action is {', '.join(self.action_names)} as numbers with commas between them, got {word!r}; "
                f"try {zeros}"
            )
        return numbers


class Environment(EnvironmentSpec):
    """The rules of a game, of observations from 0 to 1. All chance is drawn when an episode begins, so that its course
    follows from its actions."""

    num_draws: int  # random numbers per episode

    @abstractmethod
    def begin(self, draws: NDArray[np.float64]) -> State:  # "n num_draws"
        """The state at the first move."""

    @abstractmethod
    def observe(self, state: State) -> NDArray[np.float32]:  # -> "n *observation"
        """The observation of every game."""

    @abstractmethod
    def act(self, state: State, actions: Actions, t: NDArray[np.int64]) -> Outcome:
        """Takes the actions of move t, from 0, in place."""


class AnsweredEnvironment(Environment):
    """An environment whose right action is known at every move, and whose episodes are all `longest` moves long."""

    returns: tuple[float, ...]  # the possible ones, from the least to the greatest

    @abstractmethod
    def right_actions(self, state: State, t: NDArray[np.int64]) -> NDArray[np.int64]:  # "n" -> "n"
        """The right actions of move t."""


class ObjectEnvironment(Environment):
    """An environment whose observations describe one of several objects."""

    objects: ObjectLayout

    @abstractmethod
    def named_object(self, observation: NDArray[np.float32]) -> int:
        """The number of the object that is described."""

    @abstractmethod
    def object_names(self, observation: NDArray[np.float32]) -> tuple[str, ...]:
        """The objects in words."""

    @abstractmethod
    def object_pixel(self, observation: NDArray[np.float32], index: int) -> tuple[int, int]:
        """The row and column of an object in the picture."""


def one_hot(indices: NDArray[np.int64], count: int) -> NDArray[np.float32]:  # "*n" -> "*n count"
    """Rows of zeros with a one; an index of −1 is a row of zeros."""
    return (indices[..., None] == np.arange(count)).astype(np.float32)


def letters(count: int) -> Sequence[str]:
    """Names of `count` symbols: A, B, …"""
    return [chr(ord("A") + n) if n < 26 else f"S{n}" for n in range(count)]
