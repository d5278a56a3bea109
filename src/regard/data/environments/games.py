"""Games: episodes of an environment, played side by side, each followed by the next."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, Environment
from regard.data.environments.hashing import uniforms


class Played(NamedTuple):
    """The outcome of one step of n games.

    `observations` are the next ones, of a new episode where one has ended; `last` are those at which episodes ended,
    and the same as `observations` elsewhere.
    """

    observations: NDArray[np.float32]  # "n *o"
    rewards: NDArray[np.float32]  # "n"
    terminated: NDArray[np.bool_]  # "n"
    truncated: NDArray[np.bool_]  # "n"
    last: NDArray[np.float32]  # "n *o"


class Games:
    """n games of an environment; game `row` plays the episodes (seed, row, 0), (seed, row, 1), …"""

    def __init__(self, environment: Environment, seed: int, rows: NDArray[np.int64]) -> None:
        self.environment, self.seed, self.rows = environment, seed, rows
        self.episodes = np.zeros(len(rows), np.int64)
        self.t = np.zeros(len(rows), np.int64)
        self.state = environment.begin(self._draws(rows, self.episodes))

    def _draws(self, rows: NDArray[np.int64], episodes: NDArray[np.int64]) -> NDArray[np.float64]:
        return uniforms(self.seed, rows, episodes, self.environment.num_draws)

    def observe(self) -> NDArray[np.float32]:
        return self.environment.observe(self.state)

    def step(self, actions: Actions) -> Played:
        """Takes an action in every game; an episode that ends is followed by the next one at once."""
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
        """The state of all games."""
        return {"episodes": self.episodes.copy(), "t": self.t, **{f"game.{k}": v for k, v in self.state.items()}}

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from what `arrays` returned."""
        self.episodes, self.t = arrays["episodes"].copy(), arrays["t"]
        self.state = {name: arrays[f"game.{name}"] for name in self.state}
