"""PairRecall: keys with values are shown, then the keys alone: the agent names their values."""

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, AnsweredEnvironment, Outcome, State, letters, one_hot


class PairRecall(AnsweredEnvironment):
    """`pairs` of `keys` keys, each with one of `values` values, then the same keys in another order.

    The return is the share of keys that are answered with their value; chance is 1 / values.
    """

    name = "pairs"

    def __init__(self, pairs: int = 2, keys: int = 4, values: int = 4) -> None:
        if not 1 <= pairs <= keys:
            raise ValueError(f"pairs must be 1 to {keys}, the number of keys, got {pairs}; try pairs=2")
        self.pairs, self.keys, self.values = pairs, keys, values
        self.observation = (keys + values + 1,)
        self.cell_names = (*letters(keys), *(str(n) for n in range(values)), "?")
        self.action_names = tuple(str(n) for n in range(values))
        self.longest = 2 * pairs
        self.num_draws = keys + 2 * pairs
        self.goal = 1.0
        self.returns = tuple(n / pairs for n in range(pairs + 1))

    def begin(self, draws: NDArray[np.float64]) -> State:
        keys, values, order = np.split(draws, [self.keys, self.keys + self.pairs], axis=1)
        shown = keys.argsort(axis=1)[:, : self.pairs]
        shown_values = (values * self.values).astype(np.int64)
        asked, answers = (np.take_along_axis(each, order.argsort(axis=1), axis=1) for each in (shown, shown_values))
        return {
            "t": np.zeros(len(draws), np.int64),
            "keys": np.concatenate([shown, asked], axis=1),
            "values": np.concatenate([shown_values, answers], axis=1),
        }

    def observe(self, state: State) -> NDArray[np.float32]:
        rows, t = np.arange(len(state["t"])), state["t"]
        asks = t >= self.pairs
        values = np.where(asks, -1, state["values"][rows, t])
        parts = [one_hot(state["keys"][rows, t], self.keys), one_hot(values, self.values), asks[:, None]]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def act(self, state: State, actions: Actions, t: NDArray[np.int64]) -> Outcome:
        right = (t >= self.pairs) & (actions == self.right_actions(state, t))
        state["t"] = np.minimum(t + 1, self.longest - 1)
        return right.astype(np.float32) / np.float32(self.pairs), t + 1 == self.longest

    def right_actions(self, state: State, t: NDArray[np.int64]) -> NDArray[np.int64]:
        values: NDArray[np.int64] = state["values"][np.arange(len(t)), t]
        return values

    def describe(self, observation: NDArray[np.float32]) -> str:
        key = letters(self.keys)[int(observation[: self.keys].argmax())]
        value = observation[self.keys : self.keys + self.values]
        return f"{key} = {int(value.argmax())}" if value.any() else f"{key} = ?"
