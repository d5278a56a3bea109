"""MessageGame: one player sees keys with values, another one is asked for them, and only messages go between them."""

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Environment, Outcome, State
from regard.data.environments.pairs import PairRecall


class MessageGame(Environment):
    """Two players: `facts` keys with values are shown to the first, one per step; then the second is asked for each.

    The second sees nothing of what the first saw, nor its actions. The return is the share of keys that are answered
    with their value: chance is 1 / values without a message.
    """

    name = "message"
    players = 2

    def __init__(self, facts: int = 2, keys: int = 4, values: int = 4) -> None:
        if not 1 <= facts <= keys:
            raise ValueError(f"facts must be 1 to {keys}, the number of keys, got {facts}; try facts=2")
        self._pairs = PairRecall(facts, keys, values)
        self.observation, self.action_names = self._pairs.observation, self._pairs.action_names
        self.longest, self.num_draws, self.goal = self._pairs.longest, self._pairs.num_draws, self._pairs.goal

    def begin(self, draws: NDArray[np.float64]) -> State:
        return self._pairs.begin(draws)

    def observe(self, state: State) -> NDArray[np.float32]:
        return self._pairs.observe(state)

    def act(self, state: State, actions: NDArray[np.int64], t: NDArray[np.int64]) -> Outcome:
        return self._pairs.act(state, actions, t)

    def describe(self, observation: NDArray[np.float32]) -> str:
        player = "second" if observation[-1] else "first"
        return f"{player}: {self._pairs.describe(observation)}"
