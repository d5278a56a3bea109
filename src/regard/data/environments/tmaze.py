"""TMaze: a cue at the start of a corridor says which of two objects at its end to walk to."""

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, Environment, Outcome, State, one_hot

# the cells of a view
_WALL, _FLOOR, _RED, _BLUE = range(4)
_SIGNS = "█·RB"
# up, right, down, left
_MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
_ROW = 2


class TMaze(Environment):
    """A corridor of `length` cells between a cue and a junction, seen through a window of 3 × 3 cells.

    The cue, red or blue, lies beside the first cell. At the junction a red and a blue object lie above and below; the
    episode ends at either. The one of the cue's colour is worth 1 − 0.5 t / `longest`, the other nothing  (after Bakker
    2002, and MiniGrid's memory games).
    """

    name = "tmaze"

    def __init__(self, length: int = 5, longest: int | None = None) -> None:
        if length < 2:
            raise ValueError(
                f"length must be 2 or more, so that the cue is out of sight at the end, got {length}; try length=5"
            )
        self.length = length
        self.observation = (9 * 4,)
        self.action_names = ("up", "right", "down", "left")
        self.longest = 4 * (length + 3) if longest is None else longest
        self.num_draws = 2
        self.goal = 0.5
        # row 2 is the corridor: columns 1 to length, the junction behind them
        cells = np.full((5, length + 4), _WALL)
        cells[_ROW, 1 : length + 2] = _FLOOR
        cells[1:4, length + 1] = _FLOOR
        self._cells = cells

    def begin(self, draws: NDArray[np.float64]) -> State:
        cue, upper = (draws < 0.5).astype(np.int64).T + _RED
        position = np.full_like(cue, 1)
        return {"cue": cue, "upper": upper, "row": np.full_like(cue, _ROW), "column": position}

    def observe(self, state: State) -> NDArray[np.float32]:
        row, column = state["row"], state["column"]
        steps = np.arange(-1, 2)
        rows, columns = (row[:, None] + steps)[:, :, None], (column[:, None] + steps)[:, None, :]
        view = self._cells[rows, columns]  # "n 3 3"
        end = self.length + 1
        for place, colour in (
            ((1, 1), state["cue"]),
            ((1, end), state["upper"]),
            ((3, end), _RED + _BLUE - state["upper"]),
        ):
            view = np.where((rows == place[0]) & (columns == place[1]), colour[:, None, None], view)
        return one_hot(view, 4).reshape(len(row), -1)

    def act(self, state: State, actions: Actions, t: NDArray[np.int64]) -> Outcome:
        row, column = state["row"] + _MOVES[actions, 0], state["column"] + _MOVES[actions, 1]
        is_free = self._cells[row, column] == _FLOOR
        row, column = np.where(is_free, row, state["row"]), np.where(is_free, column, state["column"])
        state["row"], state["column"] = row, column
        ended = row != _ROW
        reached = np.where(row < _ROW, state["upper"], _RED + _BLUE - state["upper"])
        rewards = np.where(ended & (reached == state["cue"]), 1 - 0.5 * (t + 1) / self.longest, 0.0)
        return rewards.astype(np.float32), ended

    def picture(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return (observation.reshape(3, 3, 4).argmax(-1) / 3.0).astype(np.float32)

    def describe(self, observation: NDArray[np.float32]) -> str:
        cells = observation.reshape(3, 3, 4).argmax(-1)
        return "/".join("".join(_SIGNS[cell] for cell in row) for row in cells)
