"""Games: episodes of an environment, played side by side, each followed by the next."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, Environment, EnvironmentSpec
from regard.data.environments.hashing import uniforms


class Played(NamedTuple):
    """The outcome of one move of n games.

    `observations` are the next ones, of a new episode where one has ended; `last` are those at which episodes ended,
    and the same as `observations` elsewhere.
    """

    observations: NDArray[np.float32]  # "n *o"
    rewards: NDArray[np.float32]  # "n"
    terminated: NDArray[np.bool_]  # "n"
    truncated: NDArray[np.bool_]  # "n"
    last: NDArray[np.float32]  # "n *o"


class VectorGames(ABC):
    """n games of an environment; game `row` plays the episodes (seed, row, 0), (seed, row, 1), …"""

    environment: EnvironmentSpec

    def __init__(self, seed: int, rows: NDArray[np.int64]) -> None:
        self.seed, self.rows = seed, rows
        self.episodes = np.zeros(len(rows), np.int64)
        self.t = np.zeros(len(rows), np.int64)  # moves of the episodes

    @abstractmethod
    def observe(self) -> NDArray[np.float32]:  # -> "n *o"
        """The observation of every game."""

    @abstractmethod
    def step(self, actions: Actions) -> Played:
        """Takes an action in every game; an episode that ends is followed by the next one at once."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state of all games."""

    @abstractmethod
    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from what `arrays` returned."""


class Games(VectorGames):
    """Games whose rules are written in numpy, all played at once."""

    environment: Environment

    def __init__(self, environment: Environment, seed: int, rows: NDArray[np.int64]) -> None:
        super().__init__(seed, rows)
        self.environment = environment
        self.state = environment.begin(self._draws(rows, self.episodes))

    def _draws(self, rows: NDArray[np.int64], episodes: NDArray[np.int64]) -> NDArray[np.float64]:
        return uniforms(self.seed, rows, episodes, self.environment.num_draws)

    def observe(self) -> NDArray[np.float32]:
        return self.environment.observe(self.state)

    def step(self, actions: Actions) -> Played:
        rewards, terminated = self.environment.act(self.state, actions, self.t)
        self.t = self.t + 1
        truncated = ~terminated & (self.t >= self.environment.longest)
        ended = terminated | truncated
        last = observations = self.observe()
        if ended.any():
            new = np.flatnonzero(ended)
            self.episodes[new] += 1
            self.t[new] = 0
            begun = self.environment.begin(self._draws(self.rows[new], self.episodes[new]))
            for name, values in begun.items():
                # a copy: the arrays before may be those of a checkpoint
                self.state[name] = self.state[name].copy()
                self.state[name][new] = values
            observations = last.copy()
            observations[new] = self.environment.observe(begun)
        return Played(observations, rewards, terminated, truncated, last)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"episodes": self.episodes.copy(), "t": self.t, **{f"game.{k}": v for k, v in self.state.items()}}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.episodes, self.t = arrays["episodes"].copy(), arrays["t"]
        self.state = {name: arrays[f"game.{name}"] for name in self.state}
