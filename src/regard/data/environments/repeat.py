"""RepeatPrevious: a symbol per move; the agent names the one that it saw some moves before."""

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, AnsweredEnvironment, Outcome, State, letters, one_hot


class RepeatPrevious(AnsweredEnvironment):
    """Repeat-previous (Morad et al. 2023, POPGym): from move `back` on, name the symbol of `back` moves before.

    The return is the share of right answers minus that of wrong ones: 1 at best, −0.5 by chance with four symbols.
    """

    name = "repeat"

    def __init__(self, back: int = 4, symbols: int = 4, answers: int = 12) -> None:
        if back < 1:
            raise ValueError(f"back must be 1 or more, got {back}; try back=4")
        self.back, self.symbols, self.answers = back, symbols, answers
        self.observation = (symbols + 1,)
        self.cell_names = (*letters(symbols), "?")
        self.action_names = tuple(letters(symbols))
        self.longest = self.num_draws = back + answers
        self.goal = 1.0
        self.returns = tuple((2 * n - answers) / answers for n in range(answers + 1))

    def begin(self, draws: NDArray[np.float64]) -> State:
        return {"t": np.zeros(len(draws), np.int64), "symbols": (draws * self.symbols).astype(np.int64)}

    def observe(self, state: State) -> NDArray[np.float32]:
        t = state["t"]
        asks = (t >= self.back)[:, None]
        symbols = one_hot(state["symbols"][np.arange(len(t)), t], self.symbols)
        return np.concatenate([symbols, asks], axis=1, dtype=np.float32)

    def act(self, state: State, actions: Actions, t: NDArray[np.int64]) -> Outcome:
        rewards = (
            np.where(t >= self.back, np.where(actions == self.right_actions(state, t), 1.0, -1.0), 0.0) / self.answers
        )
        state["t"] = np.minimum(t + 1, self.longest - 1)
        return rewards.astype(np.float32), t + 1 == self.longest

    def right_actions(self, state: State, t: NDArray[np.int64]) -> NDArray[np.int64]:
        symbols: NDArray[np.int64] = state["symbols"][np.arange(len(t)), np.maximum(t - self.back, 0)]
        return symbols

    def describe(self, observation: NDArray[np.float32]) -> str:
        symbol = letters(self.symbols)[int(observation[: self.symbols].argmax())]
        return f"{symbol} ?" if observation[-1] else symbol
