"""Target: a picture per move with at most one target among distractors; the agent names its open side, or none."""

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, Environment, Outcome, State

_CELL = 5  # pixels per side of a sprite, its margin included
_SIDES = ("up", "right", "down", "left")
_NONE = len(_SIDES)
_GAPS = ((0, 1), (1, 2), (2, 1), (1, 0))


def _sprites() -> NDArray[np.float32]:  # "2 4 5 5"
    """Rings that are open at one side: the target with a dot in it, distractors without."""
    sprites = np.zeros((2, 4, _CELL, _CELL), np.float32)
    ring = np.ones((3, 3), np.float32)
    ring[1, 1] = 0.0
    for kind in range(2):
        for side, gap in enumerate(_GAPS):
            sprite = ring.copy()
            sprite[gap] = 0.0
            sprite[1, 1] = float(kind == 0)
            sprites[kind, side, 1:4, 1:4] = sprite
    return sprites


class Target(Environment):
    """A picture of `grid` × `grid` places with a target and `distractors`, all rings that are open at one side.

    Only the target has a dot in its middle, and only its open side counts. One picture of five has a further distractor
    instead of the target, and asks for none: without these, an agent could infer one side from not finding the others.
    The return is the share of pictures that are answered right; chance is 1 / 5.
    """

    name = "target"

    def __init__(self, grid: int = 4, distractors: int = 3, pictures: int = 4) -> None:
        if not 0 <= distractors < grid * grid:
            raise ValueError(
                f"distractors must be 0 to {grid * grid - 1}, one per place beside the target, got {distractors}; "
                "try distractors=3"
            )
        self.grid, self.distractors, self.longest = grid, distractors, pictures
        self.observation = (grid * _CELL, grid * _CELL)
        self.action_names = (*_SIDES, "none")
        self.num_draws = pictures * (grid * grid + distractors + 2)
        self.goal = 1.0
        self._sprites = _sprites()

    def begin(self, draws: NDArray[np.float64]) -> State:
        n, count = len(draws), self.grid * self.grid
        per_picture = draws.reshape(n, self.longest, -1)
        places = per_picture[..., :count].argsort(-1)[..., : self.distractors + 1]
        sides = (per_picture[..., count + 1 :] * 4).astype(np.int64)  # the first is that of the target
        answers = np.where(per_picture[..., count] < 1 / 5, _NONE, sides[..., 0])
        return {"t": np.zeros(n, np.int64), "places": places, "sides": sides, "answers": answers}

    def observe(self, state: State) -> NDArray[np.float32]:
        t = state["t"]
        rows = np.arange(len(t))
        places, sides = state["places"][rows, t], state["sides"][rows, t]  # "n s"
        is_distractor = np.ones(places.shape, np.int64)
        is_distractor[:, 0] = state["answers"][rows, t] == _NONE
        cells = np.zeros((len(t), self.grid * self.grid, _CELL, _CELL), np.float32)
        cells[rows[:, None], places] = self._sprites[is_distractor, sides]
        side = self.grid * _CELL
        return cells.reshape(len(t), self.grid, self.grid, _CELL, _CELL).swapaxes(2, 3).reshape(len(t), side, side)

    def act(self, state: State, actions: Actions, t: NDArray[np.int64]) -> Outcome:
        right = actions == state["answers"][np.arange(len(t)), t]
        state["t"] = np.minimum(t + 1, self.longest - 1)
        return right.astype(np.float32) / np.float32(self.longest), t + 1 == self.longest

    def _place(self, observation: NDArray[np.float32]) -> tuple[int, int] | None:
        """The row and column of the target among the places."""
        middles = observation[_CELL // 2 :: _CELL, _CELL // 2 :: _CELL]
        if not middles.any():
            return None
        row, column = np.unravel_index(int(middles.argmax()), middles.shape)
        return int(row), int(column)

    def describe(self, observation: NDArray[np.float32]) -> str:
        place = self._place(observation)
        return "no target" if place is None else f"target in row {place[0] + 1}, column {place[1] + 1}"

    def target(self, observation: NDArray[np.float32]) -> tuple[int, int] | None:
        place = self._place(observation)
        return None if place is None else (place[0] * _CELL + _CELL // 2, place[1] * _CELL + _CELL // 2)
